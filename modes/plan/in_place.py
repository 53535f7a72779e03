"""Where C++ writes into a tensor that the backward has just made, if all are plain: for others, and under any mode, it
makes a new one, which would be one too many in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from ...subclasses.core.private import OpOverload, is_view, running_node

_ADD = torch.ops.aten.add.Tensor
_FILLING = frozenset(("scatter", "scatter_add", "index_add", "index_put", "index_fill", "put"))
_FORMULAS = {"BinaryCrossEntropyWithLogitsBackward0": frozenset(("sub", "mul", "div"))}
_WITHOUT_SUMS = ("MulBackward0", "MmBackward0", "BmmBackward0")  # several gradients, and no sum in the formula of one


class InPlace(Enum):
    """How long C++ would have had the first operand: not beyond the operator, or until the end of a formula, in which
    temporaries stay."""

    AT_ONCE = auto()
    AT_THE_END = auto()


def in_place(func: Any, given: Sequence[Tensor], first: int | None, node: int | None) -> InPlace | None:
    """Whether C++ writes the result of ``func(*given)`` into the first operand, if nobody else has that. ``first``,
    ``node``: the numbers of the autograd nodes that made that operand, and that the backward is at.

    Either the engine adds up gradients (of several nodes, or of one with several gradients for one tensor), or a
    derivative's formula fills zeros that it has made, or it is one of those that are written so.
    """
    if first is None or not isinstance(func, OpOverload):
        return None
    here = running_node() or ""
    if func is _ADD and len(given) == 2 and (first != node or here in _WITHOUT_SUMS):
        return None if is_view(given[0]) else InPlace.AT_ONCE  # a view keeps its base, which shares its memory
    name = func.overloadpacket.__name__
    if first != node or not here[-1:].isdigit():  # a Function of the program says itself what it does in place
        return None
    if name in _FORMULAS.get(here, ()):
        return InPlace.AT_THE_END
    return InPlace.AT_ONCE if name in _FILLING else None
