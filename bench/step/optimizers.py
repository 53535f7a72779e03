"""The optimizers, by the names that the command line knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from .models import shrinkage

SGD, ADAMW = "SGD", "AdamW foreach"
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    SGD: torch.optim.SGD,
    "AdamW single": partial(torch.optim.AdamW, foreach=False),
    ADAMW: partial(torch.optim.AdamW, foreach=True),
    "AdamW fused": partial(torch.optim.AdamW, fused=True),
}


def make_optimizer(name: str, parameters: Iterable[Tensor], weights: int) -> torch.optim.Optimizer:
    """One whose steps are large enough to change what an int8 weight holds, and small enough for so many weights."""
    rate = 0.3 if name == SGD else 0.01
    return OPTIMIZERS[name](parameters, lr=rate * shrinkage(weights))
