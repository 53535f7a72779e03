"""``lamina::int8_mm`` on CPUs."""

from __future__ import annotations

import torch

from .activations import UNSIGNED_ZERO, encoded, joined, row_steps
from .blocks import Factors, factors, zero_point_product
from .floats import float_mm
from .groups import SMALLEST_GROUP, grouped_mm
from .integers import LARGEST_K, SUMS_ARE_EXACT, int_mm

_NO_ZERO_POINT = torch.zeros(1, dtype=torch.int32)
_ONE = torch.ones(1, dtype=torch.float32)
_LARGEST_SHRINK = 0.125


def cpu_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, activation: str
) -> torch.Tensor:
    """See ``operator``. Rows that integers can't stand for (NaN, infinity, beyond 2^100) go the way of floats, with all
    of the call: so do small groups, ``K`` beyond what int32 sums take, and CPUs whose int8 sums saturate."""
    if a.numel() == 0 or qdata.numel() == 0:
        return a.new_zeros(a.shape[0], qdata.shape[1])
    if activation == "auto":
        activation = fastest(a, qdata)
    if activation != "float" and SUMS_ARE_EXACT:
        product = _integer_product(a, qdata, scale, zero_point, activation == "int16")
        if product is not None:
            return product
    return float_mm(a, qdata.to_dense() if qdata.is_mkldnn else qdata, scale, zero_point)


def fastest(a: torch.Tensor, qdata: torch.Tensor) -> str:
    """The activation that ``"auto"`` stands for: ``"int8"``, but for weights so small that the calls around the product
    cost more than it does. Bounds are where the two took the same time, one thread, on an AVX512-VNNI CPU.
    """
    rows, elements = a.shape[0], qdata.numel()
    if a.dtype is torch.bfloat16:  # a product of more than some 2^12 terms pays 30 us for oneDNN's
        small = elements <= 2**14 if qdata.is_mkldnn and rows > 1 else rows * elements <= 2**13
    else:
        small = elements <= 2**15 if rows == 1 else elements * (rows + 14) <= 1.38e6
    return "float" if small or a.dtype is torch.float64 else "int8"


def _integer_product(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, halves: bool
) -> torch.Tensor | None:
    one_sided = factors(scale, *qdata.shape)
    if one_sided is not None:
        return _integer_mm(a, qdata, one_sided, zero_point, halves) if qdata.shape[0] <= LARGEST_K else None
    group = qdata.shape[0] // scale.shape[0]
    if SMALLEST_GROUP <= group <= LARGEST_K and not qdata.is_mkldnn:
        return grouped_mm(a, qdata, scale, zero_point, halves)
    return None


def _integer_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: Factors, zero_point: torch.Tensor | None, halves: bool
) -> torch.Tensor | None:
    """None where the rows of ``a`` are beyond integers."""
    rows, packed = a.shape[0], qdata.is_mkldnn
    exact = scale.scaled(a.float())
    steps = row_steps(exact, halves)
    if steps is None:
        return None
    step = steps.step
    codes = encoded(exact, steps.inverse, halves, packed)
    # Packed sums are scaled by the columns at once: first by a number that keeps them from overflowing there.
    shrink = step if isinstance(step, float) else min(steps.largest, _LARGEST_SHRINK)
    product = _packed_product(codes, qdata, scale.columns, shrink) if packed else int_mm(codes, qdata)
    if zero_point is not None:
        shift = zero_point_product(codes, zero_point, qdata.shape, scale.rows is None)
        product -= shift * (shrink if scale.columns is None else scale.columns * shrink) if packed else shift
    if halves:
        product = joined(product)
    if not packed:
        product.mul_(step)
        if scale.columns is not None:
            product.mul_(scale.columns)
    elif rows > 1:
        product.mul_(step / shrink)
    return product.to(a.dtype)


def _packed_product(
    codes: torch.Tensor, qdata: torch.Tensor, columns: torch.Tensor | None, shrink: float
) -> torch.Tensor:
    """``(codes @ qdata * shrink) * columns``, in that order."""
    columns = _ONE if columns is None else columns.contiguous()
    product: torch.Tensor = torch.ops.onednn.qlinear_pointwise.default(
        codes, shrink, UNSIGNED_ZERO, qdata, columns, _NO_ZERO_POINT, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return product
