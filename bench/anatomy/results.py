"""What the anatomy found: the parts of each subject's cost, op by op, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..record import Record
from ..timing import Summary
from .parts import PARTS, WHOLE


@dataclass(frozen=True)
class PartFigure:
    """Nanoseconds of one part of one call; WHOLE is the call itself, REST what is left of it beside the SUM."""

    name: str
    op: str
    subject: str
    part: str
    time_ns: Summary
    rounds_ns: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True)
class Unknown:
    """A part that cannot be measured, and why."""

    op: str
    subject: str
    part: str
    reason: str


@dataclass
class Anatomies(Record):
    """All that one run measured. Rounds of one op are paired: the i-th of every figure were taken together."""

    bench: ClassVar[str] = "anatomy"

    figures: list[PartFigure] = field(default_factory=list)
    stand_in_ns: dict[str, Summary] = field(default_factory=dict)
    unmeasurable: list[Unknown] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def of(self, op: str, subject: str) -> dict[str, PartFigure]:
        """The parts of one call, by name."""
        return {each.part: each for each in self.figures if (each.op, each.subject) == (op, subject)}

    def calls(self) -> list[tuple[str, str]]:
        """Each op and subject that was measured."""
        return [(each.op, each.subject) for each in self.figures if each.part == WHOLE]

    def to_json(self) -> dict[str, Any]:
        """With what the parts mean."""
        return {**super().to_json(), "parts": PARTS}
