"""The result of a sweep: totals, failures, and a table that groups them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """One case that differs from the plain run. ``stage``: forward, input (mutated or not) or grad.

    ``call``: as one reads it; ``size``: how many elements its operands have.
    """

    op: str
    variant: str
    dtype: str
    index: int
    stage: str
    kind: str
    detail: str
    call: str = ""
    size: int = 0

    @property
    def reason(self) -> str:
        return f"{self.stage}: {self.kind}"

    def __str__(self) -> str:
        return f"{self.op} [{self.variant}, {self.dtype}, sample {self.index}] {self.reason}: {self.detail}"


@dataclass
class Report:
    """Counts of one sweep.

    ``skipped``: the plain run itself raises. ``untouched``: no operand is of the class, since there is none, or none
    that it takes. ``refused``: sparse, with an error that says so; neither passed nor
    failed. ``loose``: compared by metadata or up to rounding, for a reason that ``samples`` names. ``rounded``: by
    operator, those that were equal within the candidate's tolerance only.
    """

    passed: int = 0
    skipped: int = 0
    untouched: int = 0
    refused: int = 0
    sparse: int = 0
    loose: int = 0
    with_grad: int = 0
    failures: list[Failure] = field(default_factory=list)
    rounded: Counter[str] = field(default_factory=Counter)

    @property
    def compared(self) -> int:
        return self.passed + len(self.failures)

    @property
    def rate(self) -> float:
        """The share of compared cases that are equal; 0.0 where nothing was compared."""
        return self.passed / self.compared if self.compared else 0.0

    def __add__(self, other: Report) -> Report:
        return Report(
            self.passed + other.passed,
            self.skipped + other.skipped,
            self.untouched + other.untouched,
            self.refused + other.refused,
            self.sparse + other.sparse,
            self.loose + other.loose,
            self.with_grad + other.with_grad,
            self.failures + other.failures,
            self.rounded + other.rounded,
        )

    def summary(self) -> str:
        return (
            f"{self.passed} of {self.compared} equal ({100 * self.rate:.2f} %), {self.with_grad} with gradients, "
            f"{self.loose} loosely, {self.rounded.total()} within a tolerance; plain run raises: {self.skipped}; "
            f"sparse: {self.sparse}, of these refused: {self.refused}"
        )

    def table(self) -> str:
        """The summary, then one line per reason and operator: how often, and in which variants and dtypes."""
        groups: dict[tuple[str, str], list[Failure]] = {}
        for failure in self.failures:
            groups.setdefault((failure.reason, failure.op), []).append(failure)
        reasons = Counter(failure.reason for failure in self.failures)
        ordered = sorted(groups.items(), key=lambda item: (-reasons[item[0][0]], item[0]))
        lines = [self.summary()]
        for (reason, op), found in ordered:
            places = f"{_listed(f.variant for f in found)}; {_listed(f.dtype for f in found)}"
            lines.append(f"{reason:<24} {op:<44} {len(found):>4}  {places}  e.g. {found[0].detail[:110]}")
        return "\n".join(lines)


def _listed(words: Iterable[str]) -> str:
    return ",".join(sorted(set(words)))
