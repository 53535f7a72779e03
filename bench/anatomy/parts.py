"""The parts of one call's cost, and the plan by which each is measured: by differences of variants of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from ..timing import Variant

CALL, ENTERING, LOOK_UP, OBSERVING, UNWRAP = "call", "entering", "look-up", "observing", "unwrap"
INNER, WRAP, ALIASING, OWN, LEAVING, DEALLOCATION = (
    "inner op",
    "wrap",
    "aliasing",
    "handler, else",
    "leaving",
    "deallocation",
)
WHOLE, SUM, REST = "whole", "sum", "rest"
PARTS = {
    CALL: "a C++ call that computes nothing: torch.is_same_size on plain tensors",
    ENTERING: "a handler that hands back nothing, over that",
    LOOK_UP: "finding what to do for the operator: a table, or a chain of ifs",
    OBSERVING: "what an observer wraps around its entries",
    UNWRAP: "taking the operands apart",
    INNER: "the operator on the inner tensors, called from Python",
    WRAP: "making the outer tensor",
    ALIASING: "sharing the storage of a view with its base",
    OWN: "the handler without its inner operators and the wrapping: what cannot be told apart from outside",
    LEAVING: "handing a result back through C++, over handing back nothing",
    DEALLOCATION: "freeing the result and what it holds",
}
"""In the order in which they happen, each with what it means."""


@dataclass(frozen=True)
class Part:
    """One part: the times of the variants `plus` without those of the variants `minus`, round by round."""

    name: str
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()

    def rounds(self, measured: Mapping[str, Sequence[float]]) -> list[float]:
        """Nanoseconds, one a round. Parts that the noise makes negative stay so: the sum has to hold."""
        added = zip(*(measured[name] for name in self.plus), strict=True)
        taken = zip(*(measured[name] for name in self.minus), strict=True) if self.minus else repeat(())
        return [sum(more) - sum(less) for more, less in zip(added, taken, strict=False)]


@dataclass(frozen=True)
class Unmeasured:
    """A part that cannot be measured, and why."""

    part: str
    reason: str


@dataclass
class Plan:
    """The variants of one subject and op, by short name, WHOLE among them; the parts that they make up; what is left
    unmeasured; and notes in words."""

    variants: dict[str, Variant] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    unmeasured: list[Unmeasured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *variants: Variant) -> None:
        """More variants, by their names."""
        self.variants |= {variant.name: variant for variant in variants}
