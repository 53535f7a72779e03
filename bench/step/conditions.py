"""The conditions of a figure, and which of them a run measures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..trials import Gap
from .models import MLP, MODELS, SMALL, Size
from .optimizers import ADAMW, OPTIMIZERS, SGD

EAGER, MODEL, OPTIMIZER, WHOLE = "eager", "compiled model", "compiled model and optimizer", "compiled whole step"
MODES = (EAGER, MODEL, OPTIMIZER, WHOLE)
PARAMETERS, MANY = (8, 64, 512), 512
FEWEST_GRAPHS = {EAGER: 0, MODEL: 1, OPTIMIZER: 2, WHOLE: 2}
"""The model's graph and the optimizer's: torch's Optimizer.step breaks the whole step's in two."""


@dataclass(frozen=True)
class Group:
    """Steps that are timed together, in turns: all wrappings, layers and numbers of parameters of them.

    `abridged`: of a very large compiled model, plain and one layer alone, since it takes minutes to compile.
    """

    model: str
    optimizer: str
    mode: str
    parameters: tuple[int, ...]
    most_layers: int
    quantized: bool = True
    abridged: bool = True
    size: Size = field(default=SMALL)

    @property
    def name(self) -> str:
        """What tells the groups of a run apart."""
        wide = "" if self.size == SMALL else f", hidden size {self.size.width}, batch {self.size.batch}"
        return f"{self.model}{wide} | {self.optimizer} | {self.mode}"

    def gap(self, parameters: int, subject: str, layers: int, reason: str, kind: str) -> Gap:
        """Why one of its steps has no figure."""
        return Gap(f"{self.model}, {parameters} parameters, {self.optimizer}", subject, layers, self.mode, reason, kind)

    def layers_at(self, parameters: int) -> int:
        """How deep to wrap so many parameters."""
        return min(self.most_layers, 1) if self._is_short_at(parameters) else self.most_layers

    def quantized_at(self, parameters: int) -> bool:
        """Whether to quantize them, too."""
        return self.quantized and not self._is_short_at(parameters)

    def _is_short_at(self, parameters: int) -> bool:
        return self.abridged and parameters >= MANY and self.mode != EAGER


@dataclass(frozen=True)
class Matrix:
    """What to measure of all combinations; the sizes of it that the command line does not narrow."""

    models: tuple[str, ...]
    optimizers: tuple[str, ...]
    modes: tuple[str, ...]
    parameters: tuple[int, ...]
    layers: int

    def __post_init__(self) -> None:
        """Refuse what no model can have."""
        if any(count < 1 for count in self.parameters):
            raise ValueError(f"a model has 1 parameter at least, got {list(self.parameters)}.")


def everything(asked: Matrix) -> Iterator[Group]:
    """All combinations: hours."""
    for model in asked.models:
        for optimizer in asked.optimizers:
            for mode in asked.modes:
                yield Group(model, optimizer, mode, asked.parameters, asked.layers, abridged=False)


def selected(asked: Matrix) -> Iterator[Group]:
    """The combinations that show the growth: each of the dimensions alone, from one point."""
    few, two = asked.parameters[:2], min(2, asked.layers)
    for mode in asked.modes:
        for model in asked.models:
            if model == MLP or len(asked.models) == 1:
                counts = asked.parameters if mode in (EAGER, MODEL) else few
                yield Group(model, asked.optimizers[0], mode, counts, asked.layers)
            elif mode in (EAGER, MODEL):
                yield Group(model, asked.optimizers[0], mode, few[:1], two)
        for optimizer in asked.optimizers[1:]:
            if mode == EAGER or (mode == OPTIMIZER and optimizer == ADAMW):
                yield Group(asked.models[0], optimizer, mode, few[-1:] if mode == EAGER else few[:1], two)


ALL_MODELS, ALL_OPTIMIZERS = tuple(MODELS), tuple(OPTIMIZERS)
QUICK = Matrix((MLP,), (SGD,), (EAGER, MODEL), (8, 32), 1)
FULL = Matrix(ALL_MODELS, ALL_OPTIMIZERS, MODES, PARAMETERS, 4)
