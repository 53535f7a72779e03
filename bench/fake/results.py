"""What the fake bench found: plain data, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..record import Record
from ..timing import Summary, paired_ratio


@dataclass(frozen=True)
class Figure:
    """Nanoseconds of one call. Rounds of one case are paired."""

    name: str
    kind: str
    what: str
    subject: str
    time_ns: Summary
    rounds_ns: tuple[float, ...] = field(repr=False)


@dataclass
class Results(Record):
    """All that one run measured."""

    bench: ClassVar[str] = "fake"

    figures: list[Figure] = field(default_factory=list)

    def figure(self, kind: str, what: str, subject: str) -> Figure | None:
        """The one of these, or None where there is a gap."""
        asked = (kind, what, subject)
        return next((each for each in self.figures if (each.kind, each.what, each.subject) == asked), None)

    def ratio(self, kind: str, what: str, subject: str, baseline: str) -> Summary | None:
        """The time of one subject over that of another, paired by round."""
        mine, base = self.figure(kind, what, subject), self.figure(kind, what, baseline)
        return paired_ratio(mine.rounds_ns, base.rounds_ns) if mine and base else None
