"""The optimizers, by the names that the command line knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

# Large enough that a few steps change what an int8 weight holds.
SGD_RATE, ADAMW_RATE = 0.3, 0.01
_adamw = partial(torch.optim.AdamW, lr=ADAMW_RATE)

SGD, ADAMW = "SGD", "AdamW foreach"
OPTIMIZERS: dict[str, Callable[[Iterable[Tensor]], torch.optim.Optimizer]] = {
    SGD: partial(torch.optim.SGD, lr=SGD_RATE),
    "AdamW single": partial(_adamw, foreach=False),
    ADAMW: partial(_adamw, foreach=True),
    "AdamW fused": partial(_adamw, fused=True),
}
