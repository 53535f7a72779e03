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

    @property
    def arguments(self) -> list[str]:
        """As a bench is asked on its command line."""
        return ["--quick"] * self.quick + ["--cpu-time"] * self.cpu_time


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
        self.done = self.begun = 0.0
        self.so_far: Callable[[], Found] | None = None

    def begin(self, doing: str, seconds: float) -> None:
        """What begins, and how many of the seconds it takes: they are done when the next part begins."""
        self._move(doing, min(self.begun, self.seconds - self.done))
        self.begun = seconds

    def keep(self, so_far: Callable[[], Found]) -> None:
        """From now on this gives what was measured so far."""
        self.so_far = so_far

    def finish(self) -> None:
        """The rest of the estimate is done, too."""
        self._move("", self.seconds - self.done)

    def _move(self, doing: str, by: float) -> None:
        self.done += by
        self.tell(f"{self.name}: {doing}" if doing else self.name, by)


@dataclass(frozen=True)
class Bench:
    """A bench and what it is about; how many seconds it takes, and how it is measured, as it is asked."""

    name: str
    about: str
    expected: Callable[[Asked], float]
    measure: Callable[[Asked, Stretch], Found]
