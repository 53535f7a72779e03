"""How a check ends, other than by returning: it raises one of these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

_WIDTH = 240
_LINE = 500


@dataclass(frozen=True)
class Coverage:
    """How many of the operator samples that a check compared were equal."""

    equal: int
    compared: int

    def __str__(self) -> str:
        return f"{self.equal} of {self.compared} equal ({100 * self.equal / max(self.compared, 1):.2f} %)"


def total(coverages: Iterable[Coverage | None]) -> Coverage | None:
    """Their sum; None where there is none."""
    found = [each for each in coverages if each is not None]
    return Coverage(sum(each.equal for each in found), sum(each.compared for each in found)) if found else None


class MismatchError(AssertionError):
    """A call that does not do what it has to. It carries the call, what was expected of it, and what came.

    ``more``: further lines, such as what else differs. ``coverage``: of a check that compares many calls.
    """

    def __init__(
        self, call: str, expected: Any, got: Any, *, more: Iterable[str] = (), coverage: Coverage | None = None
    ) -> None:
        self.call, self.expected, self.got, self.coverage = call, shown(expected), shown(got), coverage
        lines = [self.call, f"expected {self.expected}", f"got      {self.got}", *more]
        super().__init__("\n  ".join(lines))


class NotApplicable(Exception):  # noqa: N818 - an outcome, not an error
    """The behaviour can't mean anything for this class, or can't be tried on this machine. It carries the reason."""


class KnownLimit(Exception):  # noqa: N818 - an outcome, not an error
    """What torch itself gets wrong with every wrapper: the reason, or a link to the report."""

    def __init__(self, reason: str, *, coverage: Coverage | None = None) -> None:
        super().__init__(reason)
        self.coverage = coverage


def shown(value: Any) -> str:
    """``value`` in one short line. Of a tensor class only metadata: to print its values may be what is broken."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, BaseException):
        text = f"{type(value).__name__}: {first_line(value)}"
    elif isinstance(value, torch.Tensor):
        text = _tensor(value)
    elif isinstance(value, (list, tuple)):
        text = f"[{', '.join(map(shown, value))}]"
    elif isinstance(value, type):
        text = value.__name__
    else:
        text = _repr(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not empty."""
    return next((line.strip() for line in text_of(error).splitlines() if line.strip()), "")[:_LINE]


def text_of(error: BaseException) -> str:
    """An error's text, whatever ``__str__`` does there: it may fail itself, or give a subclass of str."""
    try:
        return "".join((str(error),))
    except Exception as second:  # noqa: BLE001 - a class under test has written it
        return f"its text can't be had: __str__ raises {type(second).__name__}"


def _tensor(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    text = f"{type(value).__name__} {dtype}{list(value.shape)}"
    small = type(value) is torch.Tensor and value.numel() <= 6 and value.device.type == "cpu"
    return f"{text} = {value.tolist()}" if small else text


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a class under test has written it
        return f"a {type(value).__name__}, whose repr raises {type(error).__name__}"
