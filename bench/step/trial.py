"""One training step on the bench: built, checked against the plain one, then timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

import lamina

from ..compiler import CountingInductor
from ..subjects import PLAIN, Subject
from ..timing import Variant
from ..training import TrainingStep, WholeStep
from ..trials import Gap, WrongResultError
from .compiled import guards_variant
from .conditions import EAGER, FEWEST_GRAPHS, MODEL, OPTIMIZER, WHOLE, Group
from .memory import peak_bytes
from .models import Loss, Trunked, make_task
from .optimizers import make_optimizer

CHECKED_STEPS = 4


@dataclass
class Compilation:
    """What compiling took while the step was checked. `recompiled`: graphs that a later step than the first made."""

    compile_ns: int = 0
    graphs: int = 0
    recompiled: int = 0


@dataclass
class StepTrial:
    """One wrapping of one model, with so many layers, in training."""

    group: Group
    subject: Subject
    layers: int
    parameters: int
    losses: list[float] = field(default_factory=list)
    compilation: Compilation = field(default_factory=Compilation)

    def __post_init__(self) -> None:
        """Build the model, wrap its weights, compile nothing yet."""
        task = make_task(self.group.model, self.parameters, self.group.size)
        wrap_trunk(task.model, self.subject, self.layers)
        self.model, self.batch, self.backend = task.model, task.batch, CountingInductor()
        optimizer = make_optimizer(self.group.optimizer, self.model.parameters(), self.parameters)
        self.step = self._step(optimizer, task.loss)

    def _step(self, optimizer: torch.optim.Optimizer, loss: Loss) -> TrainingStep | WholeStep:
        mode = self.group.mode
        if mode == WHOLE:
            return WholeStep(self.model, optimizer, loss, self.backend)
        backend = None if mode == EAGER else self.backend
        return TrainingStep(self.model, optimizer, loss, backend, updates=mode == OPTIMIZER)

    @property
    def name(self) -> str:
        """What tells the trials of all groups apart."""
        return f"{self.group.name} | {self.parameters} parameters | {self.subject.name} x{self.layers}"

    @property
    def guards_name(self) -> str:
        """The variant that checks the guards alone."""
        return f"{self.name} | guards"

    def gap(self, reason: str, kind: str, part: str = "") -> Gap:
        """Why there is no figure, or none of a part of it."""
        found = self.group.gap(self.parameters, self.subject.name, self.layers, reason, kind)
        return replace(found, op=f"{found.op}, {part}") if part else found

    def check(self, plain: Sequence[float] | None) -> None:
        """Train some steps; raise WrongResultError unless they went the intended way, to the same losses as plain's,
        bit for bit, or to a lower loss where the wrapping changes values."""
        for step in range(CHECKED_STEPS):
            self._checked_step(first=step == 0)
        self._check_graphs()
        self._check_weights()
        if self.subject.tolerance == 0 and plain is not None and list(plain) != self.losses:
            raise WrongResultError(f"wrong result: the losses {self.losses}, plain torch gives {list(plain)}")
        if not self.losses[-1] < self.losses[0]:
            raise WrongResultError(f"wrong result: the loss went from {self.losses[0]:.6g} to {self.losses[-1]:.6g}")

    def _checked_step(self, *, first: bool) -> None:
        graphs, start = self.backend.graphs, time.perf_counter_ns()
        loss = self.step(*self.batch)
        made = self.backend.graphs - graphs
        if made:
            self.compilation.compile_ns += time.perf_counter_ns() - start
            self.compilation.graphs += made
            self.compilation.recompiled += 0 if first else made
        self.losses.append(loss.detach().item())

    def _check_graphs(self) -> None:
        mode, graphs = self.group.mode, self.compilation.graphs
        if graphs < FEWEST_GRAPHS[mode] or (mode in (EAGER, MODEL) and graphs != FEWEST_GRAPHS[mode]):
            raise WrongResultError(f"wrong way: {graphs} graphs were compiled, {mode} has {FEWEST_GRAPHS[mode]}")

    def _check_weights(self) -> None:
        """The weights are still in all their layers, and trained in place."""
        found = wrapped_weights(self.model, self.subject, self.layers)
        if found != self.parameters:
            raise WrongResultError(f"wrong way: {found} weights are wrapped, not {self.parameters}")

    def variants(self) -> list[Variant]:
        """What is timed: the step, and where it is compiled the check of its guards."""
        timed = [Variant(self.name, self.step, self.batch)]
        return timed if self.group.mode == EAGER else [*timed, self.guards()]

    def guards(self) -> Variant:
        """The check of the guards, to be timed."""
        self.step(*self.batch)
        given = dict(zip(("inputs", "targets"), self.batch, strict=True))
        return guards_variant(self.guards_name, self.step.written, given)

    def peak_bytes(self) -> int:
        """The most bytes that a step has alive over those before it."""
        return peak_bytes(partial(self.step, *self.batch))


def wrap_trunk(model: Trunked, subject: Subject, layers: int) -> None:
    """Put every weight of the trunk into so many layers."""
    if not layers:
        return
    sample = subject.wrap(torch.zeros(2, 2))
    if isinstance(sample, lamina.WrapperTensor):
        wrap = partial(subject.wrap_layers, layers=layers)
        lamina.wrap_parameters(model, wrap, where=lambda name, *_: name.startswith("trunk."))
        return
    for module in list(model.trunk.modules()):
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(subject.wrap_layers(weight.detach(), layers)))


def wrapped_weights(model: Trunked, subject: Subject, layers: int) -> int:
    """How many weights of the trunk are in this number of layers of a subject, of plain: in none."""
    return sum(_depth(weight, subject) == layers for weight in model.trunk.parameters())


def _depth(weight: Tensor, subject: Subject) -> int:
    """In how many layers a weight is."""
    depth, held = 0, weight.data
    while subject is not PLAIN and type(held) is not Tensor and depth < subject.max_layers:
        held, depth = subject.unwrap(held), depth + 1
    return depth
