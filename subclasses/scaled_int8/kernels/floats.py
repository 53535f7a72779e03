"""``activation="float"``: the product with the decoded weight, up to the order of summation."""

from __future__ import annotations

import torch

from ..numerics import computing_dtype
from .blocks import decode_, factors

_LARGEST_STEP = 128  # |qdata|
# Elements of the payload that are converted at a time: 2 MiB of float32. The whole would leave the cache on its way.
_PART = 2**19


def float_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None
) -> torch.Tensor:
    """``a @ ((qdata - zero_point) * scale)``, in float32 (float64 for that; bfloat16 products sum in float32 anyway).

    A scale of one side is applied to the smaller matrix, which saves a pass over the weight. The sums are then up to
    ``128 K`` times ``a``: where those could overflow, as where ``a`` has NaN or infinity, the weight is decoded first.
    """
    dtype = torch.float32 if a.dtype is torch.float16 else a.dtype
    one_sided = factors(scale, *qdata.shape)
    if one_sided is not None and zero_point is None:
        scaled = one_sided.scaled(a)
        if float(scaled.abs().amax()) * _LARGEST_STEP * qdata.shape[0] < torch.finfo(dtype).max:
            product = _by_parts(scaled.to(dtype), qdata, None, None)
            return (product if one_sided.columns is None else product * one_sided.columns).to(a.dtype)
    return _by_parts(a.to(dtype), qdata, scale, zero_point).to(a.dtype)


def _by_parts(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor | None, zero_point: torch.Tensor | None
) -> torch.Tensor:
    """``a`` times ``qdata``, decoded if there is a scale, with so many columns at a time as fit in the cache."""
    outputs = qdata.shape[1]
    width = _width(qdata, scale)
    product = a.new_empty(a.shape[0], outputs)
    # bfloat16 values are computed in float32 and rounded once.
    wide = a.dtype if scale is None else computing_dtype(a.dtype)
    part = torch.empty_like(qdata[:, :width], dtype=wide)
    for start in range(0, outputs, width):
        columns = slice(start, min(start + width, outputs))
        values = part[:, : columns.stop - start].copy_(qdata[:, columns])
        if scale is not None:
            decode_(
                values,
                _cut(scale, columns, outputs),
                zero_point if zero_point is None else _cut(zero_point, columns, outputs),
            )
        torch.mm(a, values.to(a.dtype), out=product[:, columns])
    return product


def _width(qdata: torch.Tensor, scale: torch.Tensor | None) -> int:
    """The number of columns of a part: whole groups of those that share a scale."""
    inputs, outputs = qdata.shape
    group = 1 if scale is None or scale.shape[1] == 1 else outputs // scale.shape[1]
    return min(max(_PART // inputs // group, 1) * group, outputs)


def _cut(scale: torch.Tensor, columns: slice, outputs: int) -> torch.Tensor:
    """The scale of some columns: all of it where they share one."""
    groups = scale.shape[1]
    return scale if groups == 1 else scale[:, columns.start * groups // outputs : columns.stop * groups // outputs]
