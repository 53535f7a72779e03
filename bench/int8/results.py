"""What the int8 bench found, as plain data, JSON-able."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from ..record import Record
from ..timing import Summary
from .problems import Layer, Problem


@dataclass(frozen=True)
class Decibels:
    """Signal to noise: against the product with the weight's dequantized values, and with those it was made of."""

    to_dequantized: float
    to_original: float


@dataclass(frozen=True)
class Figure:
    """Nanoseconds of one product, and how many times faster than plain that is in the same mode, paired by round.

    `rounds_ns` holds the raw figures. Rounds of one problem are paired: the i-th of every figure were taken together.
    """

    problem: Problem
    subject: str
    mode: str
    time_ns: Summary
    speedup: Summary | None
    decibels: Decibels | None
    weight_bytes: int
    rounds_ns: tuple[float, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """What tells it apart in a file of figures."""
        return f"{self.problem.name} | {self.subject} | {self.mode}"


@dataclass(frozen=True)
class StepFigure:
    """Nanoseconds of one training step, how many times faster than fp32 that is, and the losses while checking it."""

    subject: str
    mode: str
    time_ns: Summary
    speedup: Summary | None
    losses: tuple[float, ...]
    weight_bytes: int
    rounds_ns: tuple[float, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """What tells it apart in a file of figures."""
        return f"training step | {self.subject} | {self.mode}"


@dataclass
class Results(Record):
    """All that one run measured."""

    bench: ClassVar[str] = "int8"

    figures: list[Figure] = field(default_factory=list)
    modes: tuple[str, ...] = ()
    steps: list[StepFigure] = field(default_factory=list)

    def problems(self) -> list[Problem]:
        """The problems that have figures, in the order in which they were measured."""
        return list(dict.fromkeys(figure.problem for figure in self.figures))

    def layers(self) -> list[Layer]:
        """The layers of those problems."""
        return list(dict.fromkeys(problem.layer for problem in self.problems()))

    def figure(self, problem: Problem, subject: str, mode: str) -> Figure | None:
        """The one figure of these conditions, or None where there is a gap."""
        key = (problem, subject, mode)
        return next((each for each in self.figures if (each.problem, each.subject, each.mode) == key), None)

    def fastest(self, problem: Problem, subjects: Iterable[str], modes: Iterable[str]) -> Figure | None:
        """The fastest of several subjects and modes, by the median; None where there is no figure of any."""
        found = [self.figure(problem, subject, mode) for subject in subjects for mode in modes]
        return min((each for each in found if each), key=lambda each: each.time_ns.median, default=None)

    def step(self, subject: str, mode: str) -> StepFigure | None:
        """The training step of one subject, or None."""
        return next((each for each in self.steps if (each.subject, each.mode) == (subject, mode)), None)

    def to_json(self) -> dict[str, Any]:
        """Training steps stand among the figures, after the products, which have a `problem`."""
        data = super().to_json()
        del data["steps"]
        found: list[Figure | StepFigure] = [*self.figures, *self.steps]
        return {**data, "figures": [{"name": each.name, **asdict(each)} for each in found]}
