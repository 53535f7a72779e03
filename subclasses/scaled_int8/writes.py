"""Rules that write the payload itself: copies between tensors of one recipe, and changes of shape in place."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ..core.fields import VIEW_SOURCE, field_attributes
from ..core.private import OpOverload
from .build import alias, same_grid
from .numerics import overwrite
from .reshape import as_strided, view
from .tensor import ScaledInt8Tensor
from .views import squeeze, t, transpose, unsqueeze

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.copy_.default)
def copy_(op: OpOverload, self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Between tensors of one recipe the payload is copied as it is, whatever their dtypes; else requantized."""
    if not same_grid(self, src) or self.partial or self.shape != src.shape:
        return ScaledInt8Tensor.super_rule(op)(self, src, non_blocking)
    overwrite(self.matrix(), src.matrix(), non_blocking)
    return self


@ScaledInt8Tensor.implements(aten.t_.default)
def t_(op: OpOverload, self: Any) -> Any:
    return _become(self, t(aten.t.default, alias(self)))


@ScaledInt8Tensor.implements(aten.transpose_.default)
def transpose_(op: OpOverload, self: Any, dim0: int, dim1: int) -> Any:
    return _become(self, transpose(aten.transpose.int, alias(self), dim0, dim1))


@ScaledInt8Tensor.implements(aten.unsqueeze_.default)
def unsqueeze_(op: OpOverload, self: Any, dim: int) -> Any:
    return _become(self, unsqueeze(aten.unsqueeze.default, alias(self), dim))


@ScaledInt8Tensor.implements(aten.squeeze_.default, aten.squeeze_.dim, aten.squeeze_.dims)
def squeeze_(op: OpOverload, self: Any, *dim: Any) -> Any:
    return _become(self, squeeze(op, alias(self), *dim))


@ScaledInt8Tensor.implements(aten.as_strided_.default)
def as_strided_(
    op: OpOverload, self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None
) -> Any:
    """Where scales can follow; else refused."""
    result = as_strided(aten.as_strided.default, alias(self), size, stride, storage_offset)
    if isinstance(result, ScaledInt8Tensor):
        return _become(self, result)
    return ScaledInt8Tensor.super_rule(op)(self, size, stride, storage_offset)


@ScaledInt8Tensor.implements(aten.resize_.default)
def resize_(op: OpOverload, self: Any, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Any:
    """To its own size, as ``out=`` of some functions asks, or to one that a view can have; others are refused."""
    if memory_format is None and tuple(size) == tuple(self.shape):
        return self
    if memory_format is None and self.is_contiguous() and prod(size) == self.numel():
        result = view(aten.view.default, alias(self), size)
        if isinstance(result, ScaledInt8Tensor):
            return _become(self, result)
    return ScaledInt8Tensor.super_rule(op)(self, size, memory_format=memory_format)


@ScaledInt8Tensor.implements(aten.resize_as_.default)
def resize_as_(
    op: OpOverload, self: Any, the_template: torch.Tensor, *, memory_format: torch.memory_format | None = None
) -> Any:
    if not isinstance(self, ScaledInt8Tensor):
        return ScaledInt8Tensor.super_rule(op)(self, the_template, memory_format=memory_format)
    return resize_(aten.resize_.default, self, the_template.shape, memory_format=memory_format)


def _become(self: Any, view: Any) -> Any:
    """Takes over the inner tensors and the grid of a view; the base follows with the outer geometry."""
    for name in field_attributes(view):
        setattr(self, name, getattr(view, name))
    if VIEW_SOURCE in vars(view):
        vars(self)[VIEW_SOURCE] = vars(view)[VIEW_SOURCE]
    return self
