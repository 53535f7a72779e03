"""Rules for views that reorder, cut or repeat dims: a view of the payload with the matching view of the scale.

A scale that is shared along a cut dim stays whole; the view is then ``partial``, and a write to it requantizes the
tensor it was cut from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.private import OpOverload, call_of
from .build import alias, applied, inserted, removed, viewed, wrapped_dim
from .errors import GridError
from .granularity import WHOLE, PerTensor, chose_groups
from .tensor import ScaledInt8Tensor

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def same(op: OpOverload, self: Any) -> Any:
    return alias(self)


@ScaledInt8Tensor.implements(aten.permute.default)
def permute(op: OpOverload, self: Any, dims: Sequence[int]) -> Any:
    view, blocks, order = applied(op, dims), self.blocks, [wrapped_dim(dim, self.dim()) for dim in dims]
    if sorted(order) != list(range(len(blocks))):
        view(self.qdata)  # which says what is wrong
    return viewed(self, view, view, tuple(blocks[dim] for dim in order))


@ScaledInt8Tensor.implements(aten.transpose.int)
def transpose(op: OpOverload, self: Any, dim0: int, dim1: int) -> Any:
    view, blocks = applied(op, dim0, dim1), list(self.blocks)
    if blocks:
        if not all(-len(blocks) <= dim < len(blocks) for dim in (dim0, dim1)):
            view(self.qdata)  # which says what is wrong
        blocks[dim0], blocks[dim1] = blocks[dim1], blocks[dim0]
    return viewed(self, view, view, tuple(blocks))


@ScaledInt8Tensor.implements(aten.t.default)
def t(op: OpOverload, self: Any) -> Any:
    view = call_of(op)
    return viewed(self, view, view, self.blocks[::-1])


@ScaledInt8Tensor.implements(aten.unsqueeze.default)
def unsqueeze(op: OpOverload, self: Any, dim: int) -> Any:
    view = applied(op, dim)
    return viewed(self, view, view, inserted(self.blocks, wrapped_dim(dim, self.dim() + 1), _new_block(self)))


@ScaledInt8Tensor.implements(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(op: OpOverload, self: Any, *dim: Any) -> Any:
    """The dims of the payload decide: the scale has size 1 along others, too."""
    rank = self.dim()
    named = range(rank) if not dim else dim if isinstance(dim[0], int) else dim[0]
    gone = sorted({wrapped_dim(d, rank) for d in named if rank and self.shape[d] == 1})
    view = applied(aten.squeeze.dims, gone)
    return viewed(self, view, view, tuple(b for d, b in enumerate(self.blocks) if d not in gone))


@ScaledInt8Tensor.implements(aten.expand.default)
def expand(op: OpOverload, self: Any, size: Sequence[int], *, implicit: bool = False) -> Any:
    new = len(size) - self.dim()
    blocks = ((_new_block(self),) * new) + self.blocks
    view = applied(op, size)
    expanded = view(self.qdata).shape

    def of_scale(scale: torch.Tensor) -> torch.Tensor:
        own = (*(1,) * new, *scale.shape)
        return op(scale, [full if block == 1 else s for full, s, block in zip(expanded, own, blocks, strict=True)])  # type: ignore[no-any-return]

    emptied = any(full < size for full, size in zip(expanded[new:], self.shape, strict=True))
    return viewed(self, view, of_scale, blocks, cuts=emptied)  # a scale of no values would be written


@ScaledInt8Tensor.implements(aten.slice.Tensor)
def slice_(
    op: OpOverload, self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    view = applied(op, dim, start, end, step)
    if self.dim() == 0 or not -self.dim() <= dim < self.dim() or step < 1:
        view(self.qdata)  # which says what is wrong
    dim = wrapped_dim(dim, self.dim())
    size, block = self.shape[dim], self.blocks[dim]
    start, end = _bounds(start, end, size)
    if block == 1:
        return viewed(self, view, view, self.blocks)
    if block == WHOLE:
        return viewed(self, view, aten.alias.default, self.blocks, cuts=_cuts(self, dim, -(-(end - start) // step)))
    on_grid = step == 1 and not start % block and not end % block
    if not on_grid and not chose_groups(self.granularity):
        return ScaledInt8Tensor.super_rule(op)(self, dim, start, end, step)
    if not on_grid:
        raise GridError(
            f"slice {start}:{end}:{step} of dim {dim} cuts groups of {block} in a {type(self).__name__} of shape "
            f"{tuple(self.shape)}: start and end have to be multiples of {block}, the step 1. Slice dequantize() for "
            "others."
        )
    groups = applied(op, dim, start // block, end // block)
    return viewed(self, view, groups, self.blocks)


@ScaledInt8Tensor.implements(aten.select.int)
def select(op: OpOverload, self: Any, dim: int, index: int) -> Any:
    view = applied(op, dim, index)
    rank = self.dim()
    if rank == 0 or not -rank <= dim < rank or not -self.shape[dim] <= index < self.shape[dim]:
        view(self.qdata)  # which says what is wrong
    dim = wrapped_dim(dim, rank)
    size, block = self.shape[dim], self.blocks[dim]
    place = wrapped_dim(index, size)
    group = place if block == 1 else 0 if block == WHOLE else place // block
    cuts = _cuts(self, dim, 1) if block == WHOLE else block > 1
    return viewed(self, view, applied(op, dim, group), removed(self.blocks, dim), cuts=cuts)


@ScaledInt8Tensor.implements(aten.split.Tensor)
def split(op: OpOverload, self: Any, split_size: int, dim: int = 0) -> Any:
    pieces = [piece.shape[dim] for piece in op(self.qdata, split_size, dim)]
    return _cut(self, pieces, dim)


@ScaledInt8Tensor.implements(aten.split_with_sizes.default)
def split_with_sizes(op: OpOverload, self: Any, split_sizes: Sequence[int], dim: int = 0) -> Any:
    op(self.qdata, split_sizes, dim)  # refuses sizes that don't add up
    return _cut(self, split_sizes, dim)


@ScaledInt8Tensor.implements(aten.unbind.int)
def unbind(op: OpOverload, self: Any, dim: int = 0) -> Any:
    return [select(aten.select.int, self, dim, index) for index in range(len(op(self.qdata, dim)))]


def _new_block(self: Any) -> int:
    """Along a dim of size 1 both are true; this way a tensor with one scale stays ``PerTensor``."""
    return WHOLE if self.granularity == PerTensor() else 1


def _cut(self: Any, sizes: Sequence[int], dim: int) -> list[Any]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(slice_(aten.slice.Tensor, self, dim, start, start + size))
        start += size
    return pieces


def _cuts(self: Any, dim: int, kept: int) -> bool:
    """Whether values in other memory are left out where ``kept`` of a dim stay. Expanded ones are all the same."""
    return kept != self.shape[dim] and (kept == 0 or self.stride(dim) != 0)


def _bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """As Python's slices have them: counted from the front, within the dim."""
    first = 0 if start is None else start
    last = size if end is None else end
    first = max(first + size, 0) if first < 0 else min(size, first)
    last = max(last + size, 0) if last < 0 else min(size, last)
    return first, max(first, last)
