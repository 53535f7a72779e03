"""``activation="float"``: the product with the decoded weight, up to the order of summation."""

from __future__ import annotations

import torch

from .blocks import decoded, factors

_LARGEST_STEP = 255  # |qdata - zero_point|
_PART = 2**19  # elements, 2 MiB of float32


def float_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None
) -> torch.Tensor:
    """``a @ ((qdata - zero_point) * scale)``, in float32 (float64 for that; bfloat16 products sum in float32 anyway).

    A scale of one side is applied to the smaller matrix, which saves a pass over the weight. The sums are then up to
    ``255 K`` times ``a``: where those could overflow, as where ``a`` has NaN or infinity, the weight is decoded first.
    """
    dtype = torch.float32 if a.dtype is torch.float16 else a.dtype
    one_sided = factors(scale, *qdata.shape)
    if one_sided is None or zero_point is not None:
        return _decoded_mm(a, qdata, scale, zero_point, dtype)
    if one_sided.rows is not None:
        return _undecoded_mm((a * one_sided.rows.t()).to(dtype), qdata).to(a.dtype)
    if not float(a.abs().amax()) * _LARGEST_STEP * qdata.shape[0] < torch.finfo(dtype).max:
        return _decoded_mm(a, qdata, scale, zero_point, dtype)
    return (_undecoded_mm(a.to(dtype), qdata) * one_sided.columns).to(a.dtype)


def _undecoded_mm(a: torch.Tensor, qdata: torch.Tensor) -> torch.Tensor:
    """``a @ qdata``, converted by parts that fit in the cache: faster, and 2 MiB of memory instead of the whole."""
    inputs, outputs = qdata.shape
    width = max(_PART // inputs, 1)
    if width >= outputs:
        return torch.mm(a, qdata.to(a.dtype))
    product = a.new_empty(a.shape[0], outputs)
    part = torch.empty_like(qdata[:, :width], dtype=a.dtype)
    for start in range(0, outputs, width):
        values = part[:, : min(width, outputs - start)].copy_(qdata[:, start : start + width])
        torch.mm(a, values, out=product[:, start : start + width])
    return product


def _decoded_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    wide = torch.float32 if dtype is torch.bfloat16 else dtype
    return torch.mm(a.to(dtype), decoded(qdata, scale, zero_point, wide).to(dtype)).to(a.dtype)
