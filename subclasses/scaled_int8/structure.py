"""Rules that keep the payload: transposing, copies, conversions. Each does the same to ``qdata`` and ``scale``."""

from __future__ import annotations

from typing import Any

import torch

from ..core.fields import context_of, map_inner
from ..core.private import OpOverload
from .numerics import FLOATING
from .tensor import ScaledInt8Tensor

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.t.default, aten.transpose.int, aten.permute.default)
def reorder_dims(op: OpOverload, self: ScaledInt8Tensor, *dims: Any) -> Any:
    """Lazy: a view of the payload, with a view of the scale, whose dims go along."""
    return map_inner(self, lambda inner: op(inner, *dims))


@ScaledInt8Tensor.implements(aten.as_strided.default)
def as_strided(op: OpOverload, self: ScaledInt8Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Compiled code asks for the views that it returns by their geometry: a transposed one stays lazy."""
    dims = _permutation(list(zip(self.shape, self.stride(), strict=True)), list(zip(size, stride, strict=True)))
    if dims is None or storage_offset not in (None, self.storage_offset()):
        return ScaledInt8Tensor.super_rule(op)(self, size, stride, storage_offset)
    return map_inner(self, lambda inner: aten.permute.default(inner, dims))


@ScaledInt8Tensor.implements(aten.clone.default)
def clone(op: OpOverload, self: ScaledInt8Tensor, *, memory_format: torch.memory_format | None = None) -> Any:
    return _rebuilt(self, op(self.qdata, memory_format=memory_format), op(self.scale))


@ScaledInt8Tensor.implements(aten._to_copy.default)
def convert(
    op: OpOverload,
    self: ScaledInt8Tensor,
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
    return _rebuilt(self, qdata, op(self.scale, **where), logical_dtype=dtype or self.logical_dtype)


@ScaledInt8Tensor.implements(aten.copy_.default)
def copy_(op: OpOverload, self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Between tensors of one recipe the payload is copied as it is, whatever their dtypes; else requantized."""
    if not (_same_recipe(self, src) and self.qdata.shape == src.qdata.shape and self.scale.shape == src.scale.shape):
        return ScaledInt8Tensor.super_rule(op)(self, src, non_blocking)
    self.qdata.copy_(src.qdata, non_blocking)
    self.scale.copy_(src.scale, non_blocking)
    return self


def _permutation(geometry: list[Any], wanted: list[Any]) -> list[int] | None:
    """Which dims of ``geometry``, (size, stride) each, make up ``wanted``. Those that look alike are interchangeable:
    dense memory has no two of one stride that are longer than 1."""
    dims: list[int] = []
    for pair in wanted:
        fits = [dim for dim, own in enumerate(geometry) if own == pair and dim not in dims]
        if not fits:
            return None
        dims.append(fits[0])
    return dims if len(dims) == len(geometry) else None


def _same_recipe(a: Any, b: Any) -> bool:
    return type(a) is type(b) and context_of(a) | {"logical_dtype": None} == context_of(b) | {"logical_dtype": None}


def _rebuilt(like: ScaledInt8Tensor, qdata: torch.Tensor, scale: torch.Tensor, **changed: Any) -> Any:
    cls = type(like)
    return cls._generated.make(cls, qdata, scale, **(context_of(like) | changed))
