"""Calls counted by operator and phase, the table that shows them, and the views that all counters have."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from .record import Phase, joined

if TYPE_CHECKING:
    from rich.table import Table

PHASES: tuple[Phase, ...] = get_args(Phase)


class Tally:
    """How often each operator was called in each phase. A call that failed is a call."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[Phase, str, str]] = Counter()
        self._lock = threading.Lock()  # autograd runs one thread for each device

    def add(self, phase: Phase, name: str, overload: str) -> None:
        with self._lock:
            self._calls[phase, name, overload] += 1

    @property
    def total(self) -> int:
        return self._calls.total()

    @property
    def counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (_, name, overload), calls in self._calls.items():
            counts[joined(name, overload)] += calls
        return counts

    @property
    def by_phase(self) -> dict[Phase, Counter[str]]:
        """All three phases, also those without calls."""
        phases: dict[Phase, Counter[str]] = {phase: Counter() for phase in PHASES}
        for (phase, name, overload), calls in self._calls.items():
            phases[phase][joined(name, overload)] += calls
        return phases

    def to_json(self) -> dict[str, Any]:
        phases = {phase: dict(counts.most_common()) for phase, counts in self.by_phase.items()}
        return {"total": self.total, "counts": dict(self.counts.most_common()), "by_phase": phases}

    def rows(self) -> list[tuple[str, ...]]:
        """Operator, its calls in each phase, all its calls; the most called first, and a last row of sums."""
        phases = self.by_phase
        ops = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        rows = [(op, *[str(phases[phase][op] or "") for phase in PHASES], str(calls)) for op, calls in ops]
        return [*rows, ("total", *[str(phases[phase].total()) for phase in PHASES], str(self.total))]

    def table(self) -> str:
        """The rows as plain text."""
        lines = [("op", *PHASES, "total"), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        return "\n".join(text)

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table("op", *PHASES, "total")
        for row in self.rows():
            table.add_row(*row)
        return table


class Tallied:
    """Mixed into what counts calls: the views of its tally."""

    tally: Tally

    @property
    def counts(self) -> Counter[str]:
        """Calls of each operator."""
        return self.tally.counts

    @property
    def by_phase(self) -> dict[Phase, Counter[str]]:
        """Calls of each operator in each phase."""
        return self.tally.by_phase

    @property
    def total(self) -> int:
        """All calls."""
        return self.tally.total

    def table(self) -> str:
        """Calls of each operator in each phase, as plain text."""
        return self.tally.table()

    def to_json(self) -> dict[str, Any]:
        """Counts as plain types."""
        return self.tally.to_json()

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Table:
        return self.tally.__rich__()
