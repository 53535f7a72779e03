"""What the demo found, as plain data, JSON-able."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from .compiler import EAGER
from .demo_trainee import PLAIN, Phases
from .record import SCHEMA
from .results import Figure, Results
from .timing import Summary


@dataclass(frozen=True)
class Outcome:
    """One trained model.

    `ratio_to_plain` pairs each step's time with that of the plain model, eager with eager, compiled with compiled.
    `same_as` names the model whose losses and weights it must have, bit for bit; `difference` says what first differs.
    """

    wrapping: str
    mode: str
    accuracy: float
    loss: float
    weight_bytes: int
    step_ns: Summary
    ratio_to_plain: Summary
    ops: Phases
    compile_s: float
    compilations: int
    same_as: str | None
    difference: str | None

    def with_ops(self, ops: Phases) -> Outcome:
        """The same, with the operators of one step by phase."""
        return replace(self, ops=ops)

    @property
    def broke_its_promise(self) -> bool:
        """An eager transparent layer changed a number. (What a compiler fuses in another way may round differently.)"""
        return self.mode == EAGER and self.difference is not None


@dataclass(frozen=True)
class DemoResults:
    """All that one run of the demo found."""

    machine: dict[str, str | int]
    seed: int
    epochs: int
    steps: int
    train_images: int
    test_images: int
    outcomes: tuple[Outcome, ...]
    not_compiled: str | None
    layer_cost: Results

    def find(self, wrapping: str, mode: str) -> Outcome | None:
        """The outcome of one model, or None where it was not trained."""
        return next((each for each in self.outcomes if (each.wrapping, each.mode) == (wrapping, mode)), None)

    def modes(self) -> list[str]:
        """Eager, and compiled where that was possible."""
        return list(dict.fromkeys(each.mode for each in self.outcomes))

    def to_json(self) -> dict[str, Any]:
        """A dictionary of numbers, strings, lists and dictionaries only. Times are nanoseconds but for `compile_s`."""
        data = {name: value for name, value in vars(self).items() if name not in {"outcomes", "layer_cost"}}
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        return {
            "schema": SCHEMA,
            "demo": "digits",
            **data,
            "outcomes": outcomes,
            "layer_cost": self.layer_cost.to_json(),
        }


def cost_line(results: Results, op: str, subject: str) -> list[Figure]:
    """The cost of one op by layers: plain, then one layer and more."""
    figures = [each for each in results.figures if each.op == op and each.subject in {PLAIN, subject}]
    return sorted(figures, key=lambda each: each.layers)
