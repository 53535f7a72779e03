"""A trainee: the demo's model with its weights in one kind of wrapping, eager or compiled, trained and timed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import lamina

from .compiler import COMPILED, EAGER, CountingInductor
from .demo_task import Batch, Digits, make_model
from .training import TrainingStep

Phases = dict[str, int]


@dataclass(frozen=True)
class Wrapping:
    """What the weights are wrapped in, and the wrapping that must give the same numbers bit for bit, if one must."""

    name: str
    wrap: Callable[[Tensor], Tensor] | None = None
    same_as: str | None = None


def _logged(values: Tensor) -> Tensor:
    return lamina.LoggingTensor(values)


def _logged_three_times(values: Tensor) -> Tensor:
    return _logged(_logged(_logged(values)))


def _quantized(values: Tensor) -> Tensor:
    return lamina.ScaledInt8Tensor.quantize(values)


def _logged_quantized(values: Tensor) -> Tensor:
    return _logged(_quantized(values))


PLAIN = "plain"
INT8 = "ScaledInt8Tensor"
WRAPPINGS = (
    Wrapping(PLAIN),
    Wrapping("LoggingTensor x1", _logged, same_as=PLAIN),
    Wrapping("LoggingTensor x3", _logged_three_times, same_as=PLAIN),
    Wrapping(INT8, _quantized),
    Wrapping("Logging(Int8)", _logged_quantized, same_as=INT8),
)


class Trainee:
    """One model in training. All start from the same weights; biases stay plain."""

    def __init__(self, wrapping: Wrapping, *, compiled: bool, seed: int) -> None:
        self.wrapping = wrapping
        self.compiled = compiled
        self.model = make_model(seed)
        if wrapping.wrap is not None:
            lamina.wrap_parameters(self.model, wrapping.wrap, where=lambda name, *_: _is_weight(name))
        self.losses: list[float] = []
        self.steps_ns: list[int] = []
        self.compile_ns = 0
        self._backend = CountingInductor()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self._step = TrainingStep(self.model, optimizer, F.cross_entropy, self._backend if compiled else None)

    @property
    def mode(self) -> str:
        """Eager or compiled."""
        return COMPILED if self.compiled else EAGER

    @property
    def compilations(self) -> int:
        """How many graphs were compiled; a backward counts as part of its forward."""
        return self._backend.graphs

    def step(self, batch: Batch) -> None:
        """One training step, timed by the clock of its thread: what else the machine runs meanwhile does not count.

        A step that compiled something is compile time, and by the wall clock: other processes do a part of it.
        """
        graphs = self.compilations
        wall, start = time.perf_counter_ns(), time.thread_time_ns()
        loss = self._step(*batch)
        self.steps_ns.append(time.thread_time_ns() - start)
        if self.compilations > graphs:
            self.compile_ns += time.perf_counter_ns() - wall
        self.losses.append(loss.item())

    def count_ops(self, batch: Batch) -> Phases:
        """The operators of one further step, by phase."""
        with warnings.catch_warnings():
            # Of a compiled step only what still reaches the dispatcher shows, as the demo says.
            warnings.simplefilter("ignore", lamina.modes.CompiledRegionWarning)
            with lamina.modes.OpCounter() as counter:
                self._step(*batch)
        return {phase: counts.total() for phase, counts in counter.by_phase.items()}

    def accuracy(self, digits: Digits) -> float:
        """The share of the test images that are recognized."""
        with torch.no_grad():
            guesses = self.model(digits.test_images).argmax(1)
        return float((guesses == digits.test_labels).float().mean())

    def weight_bytes(self) -> int:
        """Bytes of the tensors that hold the weights, all wrapping taken off."""
        weights = [parameter for name, parameter in self.model.named_parameters() if _is_weight(name)]
        return sum(leaf.nbytes for weight in weights for leaf in lamina.leaf_tensors(weight))

    def difference(self, other: Trainee) -> str | None:
        """What first differs by a bit from the other trainee's training, if anything does."""
        for step, (mine, its) in enumerate(zip(self.losses, other.losses, strict=True)):
            if mine != its:
                return f"the loss of step {step}"
        for (name, mine_parameter), its_parameter in zip(
            self.model.named_parameters(), other.model.parameters(), strict=True
        ):
            if not torch.equal(bits_of(mine_parameter), bits_of(its_parameter)):
                return f"the trained {name}"
        return None


def _is_weight(name: str) -> bool:
    return name.endswith("weight")


def bits_of(tensor: Tensor) -> Tensor:
    """The bits of the float32 values of a tensor, wrapped or not."""
    plain = tensor.to_plain() if isinstance(tensor, lamina.WrapperTensor) else tensor
    return plain.detach().view(torch.int32)
