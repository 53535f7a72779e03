"""Where the time goes that wrapped parameters add to a compiled forward and backward.

Each part is measured, in one run with the whole, as what it takes wrapped less what it takes plain:

- guards: torch's own check, called by itself (see `compiled.guards_variant`)
- flatten and unflatten: AOTAutograd's own generated code, for these weights, around a graph that does nothing
- gradient hooks: those of the weights, called with their gradients
- AccumulateGrad: `backward()`, the gradients then dropped, less `torch.autograd.grad` of the same weights, which
  does all the rest and stores nothing; `detach` is the part of it that is the operator, called with the gradients
- the rest: what remains of forward and backward
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..timing import Measurement, Summary, Variant
from .compiled import reassembly
from .results import Split
from .trial import StepTrial

PARAMETERS = 64
FORWARD, BOTH = "forward", "forward+backward"
GUARDS, FLATTEN, HOOKS, ACCUMULATE, REST = (
    "guards",
    "flatten and unflatten",
    "gradient hooks",
    "AccumulateGrad",
    "the rest",
)
DETACH = "of AccumulateGrad: detach"
PARTS = (FORWARD, BOTH, GUARDS, FLATTEN, HOOKS, ACCUMULATE, DETACH, REST)
_GRADIENTS = "gradients, not stored"


class SplitTrial:
    """The compiled forward and backward of a checked step, whole and in parts."""

    def __init__(self, step: StepTrial) -> None:
        self.step, self.layers = step, step.layers
        self.weights = [weight for weight in step.model.parameters() if weight.requires_grad]

    def variants(self) -> list[Variant]:
        """The whole and the parts that are measured directly."""
        self.step.step.loss(*self.step.batch).backward()  # type: ignore[union-attr]
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        self._drop()
        guards = self.step.guards()
        return [
            Variant(self._name(FORWARD), self._loss),
            Variant(self._name(BOTH), self._both),
            Variant(self._name(_GRADIENTS), self._gradients),
            Variant(self._name(GUARDS), guards.function, guards.args),
            Variant(self._name(FLATTEN), reassembly(gradients)),
            Variant(self._name(HOOKS), _hooks(self.weights, gradients)),
            Variant(self._name(DETACH), lambda: [each.detach() for each in gradients], scope=torch.no_grad),
        ]

    def _name(self, part: str) -> str:
        return f"{self.step.name} | {part}"

    def _loss(self) -> Tensor:
        return self.step.step.loss(*self.step.batch)  # type: ignore[union-attr]

    def _both(self) -> None:
        self._loss().backward()
        self._drop()

    def _gradients(self) -> object:
        return torch.autograd.grad(self._loss(), self.weights)

    def _drop(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def split(self, plain: SplitTrial, measured: Measurement) -> Split:
        """All parts, by parameter and layer, of what this step takes more than the plain one."""
        by = self.step.parameters * self.layers

        def added(part: str) -> list[float]:
            mine, its = measured.rounds[self._name(part)], measured.rounds[plain._name(part)]
            return [(wrapped - bare) / by for wrapped, bare in zip(mine, its, strict=True)]

        found = {part: added(part) for part in (FORWARD, BOTH, GUARDS, FLATTEN, HOOKS, DETACH)}
        found[ACCUMULATE] = _less(found[BOTH], added(_GRADIENTS))
        found[REST] = _less(found[BOTH], *(found[part] for part in (GUARDS, FLATTEN, HOOKS, ACCUMULATE)))
        step = self.step
        parts = {part: Summary.of(found[part]) for part in PARTS}
        return Split(f"{step.name} | split", step.subject.name, self.layers, step.parameters, parts)


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    """Round by round, the whole without the parts."""
    return [all_of_it - sum(some) for all_of_it, *some in zip(whole, *parts, strict=True)]


def _hooks(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Callable[[], object]:
    """Calls the hooks of all weights with their gradients, as autograd does."""
    calls = list(_calls(weights, gradients))

    def call() -> None:
        for hook, gradient in calls:
            hook(gradient)

    return call


def _calls(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Iterator[tuple[Callable[..., object], Tensor]]:
    for weight, gradient in zip(weights, gradients, strict=True):
        for hook in (weight._backward_hooks or {}).values():
            yield hook, gradient
