"""``lamina::int8_mm`` on CUDA devices: no step reads a value on the host, so that nothing waits for the device.

Not run on a device yet: see the tests, which skip without one.
"""

from __future__ import annotations

import torch

from ...core.private import int8_product
from ..numerics import computing_dtype
from .activations import LARGEST_PEAK, LEVELS, SMALLEST_PEAK, encoded, joined, peaks
from .blocks import decode_, factors, zero_point_product
from .integers import LARGEST_K

# What torch._int_mm asks for on CUDA: more than 16 rows, and a multiple of 8 along the other dims.
_LEAST_ROWS = 17
_MULTIPLE = 8


def cuda_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, activation: str
) -> torch.Tensor:
    """See ``operator``. Integer sums need K and N in multiples of 8 and a scale that varies along one dim; what does
    not fit goes the way of floats. ``"auto"`` is ``"float"`` for up to 16 rows, and ``"int8"`` beyond."""
    inputs, outputs = qdata.shape
    if a.numel() == 0 or qdata.numel() == 0:
        return a.new_zeros(a.shape[0], outputs)
    if activation == "auto":
        activation = "float" if a.shape[0] < _LEAST_ROWS else "int8"
    one_sided = factors(scale, inputs, outputs)
    fits = inputs % _MULTIPLE == 0 and outputs % _MULTIPLE == 0
    if activation == "float" or one_sided is None or not fits or inputs > LARGEST_K:
        return _float_mm(a, qdata, scale, zero_point)
    halves = activation == "int16"
    exact = one_sided.scaled(a.float())
    peak = peaks(exact)
    step = peak.clamp(min=SMALLEST_PEAK) / LEVELS[halves]
    codes = encoded(exact, step.reciprocal(), halves, unsigned=False)
    product = _int_mm(codes, qdata)
    if zero_point is not None:
        product -= zero_point_product(codes, zero_point, qdata.shape, one_sided.rows is None)
    if halves:
        product = joined(product)
    # Rows that integers can't stand for are NaN, where on a CPU the whole product would be computed as floats.
    product.mul_(torch.where(peak < LARGEST_PEAK, step, torch.nan))
    return (product if one_sided.columns is None else product.mul_(one_sided.columns)).to(a.dtype)


def _int_mm(codes: torch.Tensor, qdata: torch.Tensor) -> torch.Tensor:
    rows = codes.shape[0]
    if rows < _LEAST_ROWS:
        codes = torch.constant_pad_nd(codes, (0, 0, 0, _LEAST_ROWS - rows))
    if not (qdata.is_contiguous() or qdata.t().is_contiguous()):
        qdata = qdata.contiguous()
    return int8_product(codes, qdata)[:rows].float()


def _float_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None
) -> torch.Tensor:
    weight = decode_(qdata.to(computing_dtype(a.dtype)), scale, zero_point)
    return torch.mm(a, weight.to(a.dtype))
