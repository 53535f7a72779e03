"""Rules for new tensors whose payload is copied: clones, conversions, ``cat``, ``stack`` and picked rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.private import OpOverload
from .build import inserted, rebuilt, removed, same_grid, wrapped_dim
from .granularity import WHOLE, follow
from .numerics import FLOATING, Quantized, quantized
from .tensor import ScaledInt8Tensor
from .views import unsqueeze

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.clone.default)
def clone(op: OpOverload, self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    return rebuilt(self, op(self.qdata, memory_format=memory_format), op)


@ScaledInt8Tensor.implements(aten._to_copy.default)
def convert(
    op: OpOverload,
    self: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Any:
    """A floating dtype is a label on the payload. Whatever int8 can't stand for (integers, sparse) becomes plain."""
    where = {"device": device, "pin_memory": pin_memory, "non_blocking": non_blocking}
    if dtype not in (None, *FLOATING) or layout not in (None, torch.strided):
        return op(self.decode(), dtype=dtype, layout=layout, memory_format=memory_format, **where)
    qdata = op(self.qdata, memory_format=memory_format, **where)
    return rebuilt(self, qdata, lambda scale: op(scale, **where), logical_dtype=dtype)


@ScaledInt8Tensor.implements(aten.new_zeros.default)
def new_zeros(
    op: OpOverload,
    self: Any,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Any:
    """Of the class, if it can be: FSDP2 makes shards this way. Every other factory gives a plain tensor."""
    dtype, where = dtype or self.dtype, {"device": device, "pin_memory": pin_memory}
    groups = [(n, block) for n, block in zip(size, self.blocks, strict=False) if block > 1]
    fits = len(size) == self.dim() and not any(n % block for n, block in groups)
    if not fits or dtype not in FLOATING or layout not in (None, torch.strided):
        return op(self.qdata, size, dtype=dtype, layout=layout, **where)
    zeros = quantized(op(self.scale, size, **where), self.blocks, symmetric=self.zero_point is None)
    return self.remade(zeros, logical_dtype=dtype, partial=False)


@ScaledInt8Tensor.implements(aten.cat.default)
def cat(op: OpOverload, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Parts of one recipe whose scales agree in shape along the other dims. Rows of one length, side by side, become
    groups of it."""
    first = tensors[0]
    rank = first.dim() if isinstance(first, ScaledInt8Tensor) else 0
    if not -rank <= dim < rank or not all(same_grid(first, t) and first.dtype is t.dtype for t in tensors):
        return ScaledInt8Tensor.super_rule(op)(tensors, dim)
    dim = wrapped_dim(dim, rank)
    blocks = first.blocks
    if any(_across(t, dim) != _across(first, dim) for t in tensors):
        return ScaledInt8Tensor.super_rule(op)(tensors, dim)
    if blocks[dim] == WHOLE and len(tensors) > 1:
        if len({t.shape[dim] for t in tensors}) > 1 or first.shape[dim] == 0:
            return ScaledInt8Tensor.super_rule(op)(tensors, dim)
        blocks = inserted(removed(blocks, dim), dim, first.shape[dim])
    points = None if first.zero_point is None else op([t.zero_point for t in tensors], dim)
    inner = Quantized(op([t.qdata for t in tensors], dim), op([t.scale for t in tensors], dim), points)
    return first.remade(inner, granularity=follow(first.granularity, blocks), partial=False)


@ScaledInt8Tensor.implements(aten.stack.default)
def stack(op: OpOverload, tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    rank = first.dim() + 1
    fits = all(isinstance(t, ScaledInt8Tensor) and t.shape == first.shape for t in tensors)
    if not fits or not -rank <= dim < rank:
        return ScaledInt8Tensor.super_rule(op)(tensors, dim)
    dim = wrapped_dim(dim, rank)
    return cat(aten.cat.default, [unsqueeze(aten.unsqueeze.default, t, dim) for t in tensors], dim)


@ScaledInt8Tensor.implements(aten.index_select.default)
def index_select(op: OpOverload, self: Any, dim: int, index: torch.Tensor) -> Any:
    if not isinstance(self, ScaledInt8Tensor) or self.dim() == 0:
        return ScaledInt8Tensor.super_rule(op)(self, dim, index)
    picked = op(self.qdata, dim, index)
    dim = wrapped_dim(dim, self.dim())
    block = self.blocks[dim]
    if block == WHOLE:
        return rebuilt(self, picked, aten.clone.default)
    blocks = inserted(removed(self.blocks, dim), dim, 1)
    return rebuilt(self, picked, lambda scale: op(scale, dim, _groups(index, block)), blocks)


@ScaledInt8Tensor.implements(aten.index.Tensor)
def index(op: OpOverload, self: Any, indices: Sequence[torch.Tensor | None]) -> Any:
    """One dim, by integers or (where no values share a scale) by a mask; others decode."""
    at = [dim for dim, each in enumerate(indices) if each is not None]
    if not isinstance(self, ScaledInt8Tensor) or len(at) != 1:
        return ScaledInt8Tensor.super_rule(op)(self, indices)
    dim, chosen = at[0], indices[at[0]]
    assert chosen is not None
    mask, block = chosen.dtype in (torch.bool, torch.uint8), self.blocks[dim]
    if mask and (block > 1 or chosen.dim() != 1):
        return ScaledInt8Tensor.super_rule(op)(self, indices)
    picked = op(self.qdata, indices)
    new = 1 if mask else chosen.dim()
    if block == WHOLE:
        shape = (*self.scale.shape[:dim], *(1,) * new, *self.scale.shape[dim + 1 :])
        blocks = inserted(removed(self.blocks, dim), dim, *(WHOLE,) * new)
        return rebuilt(self, picked, lambda scale: scale.reshape(shape).clone(), blocks)
    blocks = inserted(removed(self.blocks, dim), dim, *(1,) * new)
    return rebuilt(self, picked, lambda scale: op(scale, [*indices[:dim], _groups(chosen, block)]), blocks)


@ScaledInt8Tensor.implements(aten.embedding.default)
def embedding(
    op: OpOverload,
    weight: Any,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Decodes the rows that are looked up, not the table. The result is plain: activations are."""
    if not isinstance(weight, ScaledInt8Tensor) or weight.dim() != 2:
        return ScaledInt8Tensor.super_rule(op)(weight, indices, padding_idx, scale_grad_by_freq, sparse)
    rows = index_select(aten.index_select.default, weight, 0, indices.reshape(-1))
    return rows.decode().reshape(*indices.shape, weight.shape[1])


def _groups(places: torch.Tensor, block: int) -> torch.Tensor:
    """The blocks that places along a dim are in; places counted from the back stay so."""
    return places if block == 1 else places.div(block, rounding_mode="floor")


def _across(tensor: Any, dim: int) -> tuple[Sequence[int], Sequence[int]]:
    """The shapes of payload and scale, less ``dim``."""
    return removed(tuple(tensor.shape), dim), removed(tuple(tensor.scale.shape), dim)
