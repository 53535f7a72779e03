"""What is timed: operators whose signature was seen before, and training steps of small models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..step.models import MLP, Size, make_task
from ..step.optimizers import OPTIMIZERS, SGD
from ..training import TrainingStep
from ..trials import Gap
from .subjects import FAKE_LIKE, FAKE_TENSOR, META, PLAIN, WITHOUT_MODE

OPERATOR, STEP = "operator", "training step"
SIZE = 8  # so small that a real operator is all dispatch
GPT, ADAMW = "GPT", "AdamW single"
Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """``make``: called in the scope of a subject, gives a function and its arguments. ``subjects``: what runs it, the
    first of which the ratios are to."""

    kind: str
    what: str
    make: Callable[[], Made]
    subjects: tuple[str, ...]

    @property
    def name(self) -> str:
        """What tells it apart."""
        return f"{self.kind} | {self.what}"

    def gap(self, subject: str, reason: str, kind: str) -> Gap:
        """Why a subject has no figure."""
        return Gap(self.what, subject, 0, self.kind, reason, kind)


def cases() -> list[Case]:
    """Operators, then steps."""
    on_operators = (FAKE_TENSOR, FAKE_LIKE, WITHOUT_MODE, META, PLAIN)
    on_steps = (FAKE_TENSOR, FAKE_LIKE, PLAIN)
    operators = [Case(OPERATOR, name, make, on_operators) for name, make in _operators().items()]
    steps = [
        Case(STEP, f"{text}, {optimizer.partition(' ')[0]}", _step(model, weights, optimizer), on_steps)
        for text, model, weights in (("16-layer MLP", MLP, 16), ("4-layer GPT", GPT, 16))
        for optimizer in (SGD, ADAMW)
    ]
    return operators + steps


def _operators() -> dict[str, Callable[[], Made]]:
    return {
        "add": lambda: (torch.add, (_square(), _square())),
        "mm": lambda: (torch.mm, (_square(), _square())),
        "t": lambda: (torch.t, (_square(),)),
        "add_": lambda: (_add_, (_square(), _square())),
        "layer_norm": lambda: (torch.layer_norm, (_square(), (SIZE,), torch.ones(SIZE), torch.ones(SIZE))),
    }


def _square() -> Tensor:
    return torch.ones(SIZE, SIZE)


def _add_(mine: Tensor, other: Tensor) -> Tensor:
    return mine.add_(other)


def _step(model: str, weights: int, optimizer: str) -> Callable[[], Made]:
    def make() -> Made:
        task = make_task(model, weights, Size())
        return TrainingStep(task.model, OPTIMIZERS[optimizer](task.model.parameters()), task.loss), task.batch

    return make
