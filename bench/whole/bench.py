"""A bench as `lamina bench all` sees it: it measures, and gives its figures as JSON, its tables and its pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Tell = Callable[[str, float], object]
"""Moves the bar: what is at work, and how many seconds of the estimate are done."""


@dataclass(frozen=True)
class Asked:
    """How to measure, for all benches alike."""

    quick: bool = False
    cpu_time: bool = False


@dataclass(frozen=True)
class Found:
    """What a bench measured: its JSON, its tables (budgets apart), how to draw its pictures, how to read it all."""

    data: dict[str, Any]
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, Callable[[], Canvas]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Stretch:
    """One bench's part of the bar, of so many seconds; and what of it can be shown if it stops half-way."""

    def __init__(self, name: str, seconds: float, tell: Tell) -> None:
        self.name, self.seconds, self.tell = name, seconds, tell
        self.done = 0.0
        self.so_far: Callable[[], Found] | None = None

    def over(self, parts: float) -> Callable[..., None]:
        """The function that a bench of so many parts calls as it begins some: what is at work, and how many (one)."""
        begun = 0.0

        def advance(doing: str, by: float = 1) -> None:
            nonlocal begun
            self._move(doing, min(self.seconds * begun / max(parts, 1), self.seconds - self.done))
            begun = by

        return advance

    def keep(self, so_far: Callable[[], Found]) -> None:
        """From now on this gives what was measured so far."""
        self.so_far = so_far

    def finish(self) -> None:
        """The rest of the estimate is done, too."""
        self._move("", self.seconds - self.done)

    def _move(self, doing: str, by: float) -> None:
        self.done += by
        self.tell(f"{self.name}: {doing}" if doing else self.name, by)


Measure = Callable[[Asked, Stretch], Found]


@dataclass(frozen=True)
class Bench:
    """A bench, what it is about, and how many seconds it takes: all of it, and quick."""

    name: str
    about: str
    seconds: float
    quick_seconds: float
    measure: Measure

    def expected(self, asked: Asked) -> float:
        """How many seconds it takes."""
        return self.quick_seconds if asked.quick else self.seconds
