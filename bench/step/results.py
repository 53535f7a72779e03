"""What the step bench found: plain data, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..record import Record
from ..timing import Summary
from .memory import Overhead


@dataclass(frozen=True)
class Figure:
    """Nanoseconds of one training step; its paired ratio to plain, and what it adds by wrapped parameter and layer.

    `guards_ns`: checking the guards of the model's compiled function. `compile_ns`: one sample, by the wall clock; what
    C++ the compilation of the plain model needs too is compiled before. `recompiled`: graphs made after the first step.
    `peak_bytes`: the most that a step has alive over what was there before. Rounds of one group are paired.
    """

    name: str
    model: str
    optimizer: str
    mode: str
    parameters: int
    subject: str
    layers: int
    width: int
    batch: int
    time_ns: Summary
    to_plain: Summary | None
    added_ns: Summary | None
    guards_ns: Summary | None
    compile_ns: int
    graphs: int
    recompiled: int
    peak_bytes: int
    losses: tuple[float, ...]
    rounds_ns: tuple[float, ...] = field(repr=False)

    @property
    def group(self) -> tuple[str, str, str, int, int]:
        """What was timed together."""
        return self.model, self.optimizer, self.mode, self.width, self.batch


@dataclass(frozen=True)
class Slope:
    """A least-squares line through steps: nanoseconds by wrapped parameter and layer along `layers`, by parameter along
    `parameters`. `straight`: the square of the correlation, 1 for a line (median of the rounds); NaN is never given:
    of two points it is 1.
    """

    name: str
    along: str
    points: tuple[int, ...]
    time_ns: Summary
    straight: float


@dataclass(frozen=True)
class Split:
    """Where the time goes that wrapping adds to a compiled forward and backward: nanoseconds by parameter and layer."""

    name: str
    subject: str
    layers: int
    parameters: int
    parts_ns: dict[str, Summary]


@dataclass
class Results(Record):
    """All that one run measured."""

    bench: ClassVar[str] = "step"

    figures: list[Figure] = field(default_factory=list)
    slopes: list[Slope] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)

    def groups(self) -> list[list[Figure]]:
        """The figures that were timed together, in order."""
        found: dict[tuple[Any, ...], list[Figure]] = {}
        for figure in self.figures:
            found.setdefault(figure.group, []).append(figure)
        return list(found.values())

    def split(self, subject: str, layers: int) -> Split | None:
        """That of these layers, or None where there is a gap."""
        return next((each for each in self.splits if (each.subject, each.layers) == (subject, layers)), None)
