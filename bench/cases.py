"""The operations that are timed, and the circumstances under which they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One operation: its public function, its overload, fresh plain arguments, and which operand is the weight."""

    op: str
    function: Callable[..., object]
    overload: Callable[..., object]
    make: Callable[[], Arguments]
    weight: int = 0
    in_place: bool = False

    def outcome(self, returned: object, args: Arguments) -> object:
        """What the operation made: its result, or the operand that it changed."""
        return args[0] if self.in_place else returned


@dataclass(frozen=True)
class Circumstance:
    """How a case is called: inside a scope, with arguments that require grad, or through its overload."""

    name: str
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    requires_grad: bool = False
    through_overload: bool = False


EAGER = Circumstance("eager")
CIRCUMSTANCES = (
    EAGER,
    Circumstance("requires grad", requires_grad=True),
    Circumstance("no_grad", scope=torch.no_grad),
    Circumstance("inference_mode", scope=torch.inference_mode),
    Circumstance("OpOverload", through_overload=True),
    Circumstance("autocast bfloat16", scope=lambda: torch.autocast("cpu", torch.bfloat16)),
)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`function` over the tensors of a value, inside lists and tuples too."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, function) for item in value)
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a value, in order."""
    found: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, collect)
    return found


def random_tensors(*shapes: Sequence[int], seed: int = 0) -> list[Tensor]:
    """The same normal random tensors at every call, without touching torch's global generator."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def _arguments(*shapes: Sequence[int]) -> Callable[[], Arguments]:
    return lambda: tuple(random_tensors(*shapes))


def _lists() -> Arguments:
    tensors = random_tensors(*[SMALL] * 4)
    return tensors[:2], tensors[2:]


SMALL = (8, 8)
LARGE = (1000, 1000)
LARGE_ADD = "add, 1M elements"

CASES = (
    Case("add", torch.add, aten.add.Tensor, _arguments(SMALL, SMALL)),
    Case("mm", torch.mm, aten.mm.default, _arguments(SMALL, SMALL), weight=1),
    Case("linear", F.linear, aten.linear.default, _arguments(SMALL, SMALL, (8,)), weight=1),
    Case("t", torch.t, aten.t.default, _arguments(SMALL)),
    Case("view", Tensor.view, aten.view.default, lambda: (*random_tensors(SMALL), [4, 16])),
    Case("detach", torch.detach, aten.detach.default, _arguments(SMALL)),
    Case("add_", Tensor.add_, aten.add_.Tensor, _arguments(SMALL, SMALL), in_place=True),
    Case("cat", torch.cat, aten.cat.default, lambda: (random_tensors(SMALL, SMALL),)),
    Case("_foreach_add_", torch._foreach_add_, aten._foreach_add_.List, _lists, in_place=True),
    Case(LARGE_ADD, torch.add, aten.add.Tensor, _arguments(LARGE, LARGE)),
)


FORWARD_OPS = 100


def forward(activation: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A forward of 100 operations: 50 matrix products, each with a sum."""
    for _ in range(FORWARD_OPS // 2):
        activation = torch.mm(activation, weight)
        activation = torch.add(activation, bias)
    return activation


def forward_case(width: int, batch: int) -> Case:
    """The 100-op forward at one size. The weight is scaled so that the activation neither dies nor overflows."""

    def make() -> Arguments:
        activation, weight, bias = random_tensors((batch, width), (width, width), (width,))
        return activation, weight * (0.5 / width**0.5), bias

    return Case(f"forward {FORWARD_OPS} ops, width {width}, batch {batch}", forward, forward, make, weight=1)


FORWARDS = (forward_case(16, 16), forward_case(256, 256))
