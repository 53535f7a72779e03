"""What the bench of layers found: figures, slopes, and the shares that dispatch has in a forward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .cases import EAGER
from .record import Record
from .timing import Summary
from .trials import Gap

SLOPE = "slope along layers"
"""In place of a circumstance, in the gap of one."""


@dataclass(frozen=True)
class Figure:
    """Nanoseconds of one call, and its paired ratios to plain and to the hand-written wrapper under like conditions.

    `rounds_ns` holds the raw figures. Rounds of one op are paired: the i-th of every figure were taken together.
    """

    name: str
    op: str
    subject: str
    layers: int
    circumstance: str
    time_ns: Summary
    to_plain: Summary | None
    to_hand_written: Summary | None
    rounds_ns: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True)
class Slope:
    """Nanoseconds per layer, least squares over the layers named; ratio to the hand-written wrapper's slope."""

    op: str
    subject: str
    layers: tuple[int, ...]
    ns_per_layer: Summary
    to_hand_written: Summary | None


@dataclass(frozen=True)
class Share:
    """A whole forward under one layer, and the share of its time that plain torch does not spend."""

    op: str
    subject: str
    time_ns: Summary
    dispatch_share: Summary


@dataclass
class Results(Record):
    """All that one run measured."""

    bench: ClassVar[str] = "layers"

    figures: list[Figure] = field(default_factory=list)
    slopes: list[Slope] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)

    def eager(self, op: str) -> list[Figure]:
        """The figures of one op, called as it is ordinarily."""
        return [each for each in self.figures if each.op == op and each.circumstance == EAGER.name]

    def figure(self, op: str, subject: str, layers: int, circumstance: str = EAGER.name) -> Figure | None:
        """The one figure of these conditions, or None where there is a gap."""
        key = (op, subject, layers, circumstance)
        found = (each for each in self.figures if (each.op, each.subject, each.layers, each.circumstance) == key)
        return next(found, None)

    def tried(self, op: str | None = None) -> list[Figure | Gap]:
        """What was measured, of one op or of all, and what was not."""
        tried: list[Figure | Gap] = [*self.figures, *(gap for gap in self.gaps if gap.circumstance != SLOPE)]
        return [each for each in tried if op in (None, each.op)]

    def gap(self, op: str, subject: str, layers: int, circumstance: str = EAGER.name) -> Gap | None:
        """The reason why there is no figure of these conditions; None where there is one, or nobody asked for it."""
        key = (op, subject, layers, circumstance)
        found = (each for each in self.gaps if (each.op, each.subject, each.layers, each.circumstance) == key)
        return next(found, None)
