"""What the anatomy found: the parts of each subject's cost, op by op, and what is missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ..results import SCHEMA, refusals
from ..subjects import Absence
from ..timing import Settings, Summary
from ..trials import Gap
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
class Anatomies:
    """All that one run measured. Rounds of one op are paired: the i-th of every figure were taken together."""

    machine: dict[str, Any]
    settings: Settings
    subjects: dict[str, str] = field(default_factory=dict)
    asked_for: list[str] = field(default_factory=list)
    figures: list[PartFigure] = field(default_factory=list)
    stand_in_ns: dict[str, Summary] = field(default_factory=dict)
    unmeasurable: list[Unknown] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)

    def of(self, op: str, subject: str) -> dict[str, PartFigure]:
        """The parts of one call, by name."""
        return {each.part: each for each in self.figures if (each.op, each.subject) == (op, subject)}

    def calls(self) -> list[tuple[str, str]]:
        """Each op and subject that was measured."""
        return [(each.op, each.subject) for each in self.figures if each.part == WHOLE]

    def refused(self) -> list[Gap]:
        """The wrong results of the class that the user asked for."""
        return refusals(self.gaps, self.asked_for)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of numbers, strings, lists and dictionaries only. Times are nanoseconds. No budget is promised
        of a part."""
        data = {**asdict(self), "settings": self.settings.to_json()}
        return {"schema": SCHEMA, "bench": "anatomy", **data, "parts": PARTS, "budgets": []}
