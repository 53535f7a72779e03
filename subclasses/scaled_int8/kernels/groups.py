"""Scales in groups along K that differ between the columns, too: one integer product for each group.

Times at 2048 x 2048, one thread of an AVX512-VNNI CPU, microseconds, int8 and (float): groups of 512 take 200 (1000)
for one row and 850 (3300) for 16; groups of 128 take 345 (1000) and 1900 (3000); groups of 32 take 1000 (1400) and
3100 (2900), so those stay with floats.
"""

from __future__ import annotations

import torch

from .activations import encoded, joined, row_steps, sums
from .blocks import repeated
from .integers import int_mm

SMALLEST_GROUP = 128


def grouped_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, halves: bool
) -> torch.Tensor | None:
    """See ``cpu.cpu_mm``. None where the rows of ``a`` are beyond integers. Their steps are those of whole rows."""
    inputs, outputs = qdata.shape
    groups = scale.shape[0]
    exact = a.float()
    steps = row_steps(exact, halves)
    if steps is None:
        return None
    codes = encoded(exact, steps.inverse, halves, unsigned=False)
    step = torch.cat((steps.step, steps.step)) if halves and isinstance(steps.step, torch.Tensor) else steps.step
    factors = repeated(scale, 1, outputs).split(1)
    points = [None] * groups if zero_point is None else repeated(zero_point, 1, outputs).split(1)
    size = inputs // groups
    total = torch.zeros(codes.shape[0], outputs, dtype=torch.float32)
    for some, rows, factor, point in zip(codes.split(size, 1), qdata.split(size), factors, points, strict=True):
        product = int_mm(some, rows)
        if point is not None:
            product -= sums(some, None) * point
        total += product.mul_(step).mul_(factor)
    if halves:
        total = joined(total)
    return total.to(a.dtype)
