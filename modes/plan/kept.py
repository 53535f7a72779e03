"""Storages that stay larger than the tensors in them: a kernel makes its result as large as it needs meanwhile, then
makes the tensor smaller. Its memory is given back with the tensor.

Of torch's Loss.cpp, Im2Col.cpp and Col2Im.cpp; on all of PyTorch's operator samples these are all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from ...subclasses.core.private import OpOverload
from ...subclasses.core.schema import facts_of, value_of


def kept_bytes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Those of the storage of ``result``, if they are more than the tensor has; else 0."""
    found = _KEEPING.get(func.overloadpacket.__name__) if isinstance(func, OpOverload) else None
    if found is None or not isinstance(result, torch.Tensor):
        return 0
    given = {a.name: value_of(a, tuple(args), dict(kwargs)) for a in facts_of(func).arguments}
    return found(given) * result.element_size()


def unreduced(given: Mapping[str, Any]) -> int:
    """The elements of a loss before it is reduced; 0 where it is not."""
    shapes = given["self"].shape, given["target"].shape
    return prod(torch.broadcast_shapes(*shapes)) if given["reduction"] else 0


def _input(given: Mapping[str, Any]) -> int:
    size: int = given["self"].numel()
    return size


_LOSSES = ("mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss")
_KEEPING: dict[str, Callable[[Mapping[str, Any]], int]] = dict.fromkeys(_LOSSES, unreduced)
_KEEPING |= dict.fromkeys(("im2col", "col2im"), _input)
