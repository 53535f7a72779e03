"""A budget: a figure that was promised to stay within a bound, next to what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .timing import Summary


@dataclass(frozen=True)
class Budget:
    """What was promised to be at most `at_most` or at least `at_least`, and what was measured (None: nothing)."""

    text: str
    measured: Summary | None
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        """A budget has one bound."""
        if (self.at_most is None) is (self.at_least is None):
            raise ValueError(f"the budget {self.text!r} needs one of at_most and at_least.")

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"<= {self.at_most:.2f}" if self.at_most is not None else f">= {self.at_least:.2f}"

    @property
    def met(self) -> bool | None:
        """Whether the measured median is within the bound; None where nothing was measured."""
        if self.measured is None:
            return None
        if self.at_most is not None:
            return self.measured.median <= self.at_most
        return self.at_least is not None and self.measured.median >= self.at_least

    @property
    def verdict(self) -> str:
        """Whether it is met, in words."""
        return {True: "met", False: "NOT met", None: "not measured"}[self.met]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        """What `to_json` gave; whatever else stands in it is left out."""
        measured = data["measured"]
        found = measured and Summary(**{**measured, "interval": tuple(measured["interval"])})
        return cls(data["text"], found, data["at_most"], data["at_least"])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**asdict(self), "met": self.met}
