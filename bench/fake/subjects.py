"""Tensors without data, and those with it: in which scope each is made and computed with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from lamina.modes import FakeLikeMode

PLAIN, META, FAKE_TENSOR, FAKE_LIKE = "plain", "meta device", "torch FakeTensorMode", "lamina FakeLikeMode"
WITHOUT_MODE = "lamina FakeLikeTensor"
FLOOR = "floor: every answer known"


@dataclass(frozen=True)
class Subject:
    """``made_in`` gives the scope in which tensors are made, ``scope`` that in which they are computed with. ``kind``:
    the class that results have to be of."""

    name: str
    made_in: Callable[[], AbstractContextManager[Any]]
    scope: Callable[[], AbstractContextManager[Any]]
    kind: type


def subjects() -> dict[str, Subject]:
    """By name. One FakeTensorMode and one FakeLikeMode each, as a program would have."""
    from lamina import FakeLikeTensor

    fakes, alike = FakeTensorMode(), FakeLikeMode()
    found = (
        Subject(PLAIN, nullcontext, nullcontext, Tensor),
        Subject(META, lambda: torch.device("meta"), nullcontext, Tensor),
        Subject(FAKE_TENSOR, lambda: fakes, lambda: fakes, FakeTensor),
        Subject(FAKE_LIKE, lambda: alike, lambda: alike, FakeLikeTensor),
        Subject(WITHOUT_MODE, lambda: alike, nullcontext, FakeLikeTensor),
    )
    return {each.name: each for each in found}
