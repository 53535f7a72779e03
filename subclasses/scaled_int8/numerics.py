"""The arithmetic: values to an int8 payload, a float32 scale and maybe a zero point, and back.

Symmetric: ``s = amax(|v|) / 127`` over a block, ``q = round(v / s)`` in -127..127, ``v = q s``.
Asymmetric: ``lo = min(v, 0)`` and ``hi = max(v, 0)`` share 255 steps by their lengths. The shorter side gets ``n`` of
them, its share rounded up where it is the shorter by more than half, else to the nearest (none, if to the nearest it is
zero anyway): ``s = max(short / n, long / (255 - n))``, at most 0.6 % more than ``(hi - lo) / 255``, and both ends are
within: none is clamped, which would bias stochastic rounding. Decoded values have the same grid again, but for some
1 in 2000 blocks. With ``n`` steps below zero ``z = n - 128``, ``q = round(v / s) + z`` in -128..127, ``v = (q - z) s``.
Zero is exact in both.

``|v - decoded(v)| <= s (1/2 + 2^-15)`` for every finite value with rounding to the nearest: half a step, and the
roundings of ``s``, ``v / s`` and the product, each at most ``255 * 2^-24`` steps. With stochastic rounding it is a
whole step. Decoding to bfloat16 or float16 adds the rounding to that dtype, and finite values of that dtype stay
finite.

Temporaries are written in place: a fresh buffer for each step costs page faults, six times the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from .granularity import scale_shape
from .rounding import NEAREST, Seed, round_

QMIN, QMAX = -128, 127  # a symmetric payload leaves QMIN out
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# The smallest normal float32: a smaller scale would have few bits, or none. Blocks of zeros and denormals get this one.
SMALLEST_SCALE = torch.finfo(torch.float32).tiny


# Of a step: a share that is whole but for the rounding of float32 isn't rounded up.
_SLACK = 2**-8


class Quantized(NamedTuple):
    """``qdata`` int8 in the shape of the values; ``scale`` float32 and ``zero_point`` int8, one number a block."""

    qdata: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None


def quantized(
    values: torch.Tensor,
    blocks: Sequence[int],
    *,
    symmetric: bool = True,
    rounding: str = NEAREST,
    generator: torch.Generator | None = None,
    seed: Seed = None,
    dtype: torch.dtype | None = None,
) -> Quantized:
    """What stands for ``values``, in ``blocks``: the number of neighbours along each dim that share a scale. It will
    be decoded to ``dtype``; None: that of ``values``.

    A block of zeros has a payload that decodes to zeros. A block with a NaN or an infinite value, or one whose range is
    too large for float32, has a scale that is NaN: all of it decodes to NaN.
    """
    shape = scale_shape(values.shape, blocks)
    steps, scale, zero_point = _on_grid(values, blocks, symmetric, rounding, generator, seed, dtype, consume=False)
    point = None if zero_point is None else zero_point.to(torch.int8).reshape(shape)
    return Quantized(steps.to(torch.int8).reshape(values.shape), scale.reshape(shape), point)


def requantize_(target: Quantized, values: torch.Tensor, blocks: Sequence[int], rounding: str) -> None:
    """What stands for ``values`` is written into ``target``. Their memory is used for the work."""
    symmetric = target.zero_point is None
    new = _on_grid(values, blocks, symmetric, rounding, None, None, None, consume=True)
    for old, fresh in zip(target, new, strict=True):
        if old is not None and fresh is not None:
            old.copy_(fresh.reshape(old.shape))


def _on_grid(
    values: torch.Tensor,
    blocks: Sequence[int],
    symmetric: bool,
    rounding: str,
    generator: torch.Generator | None,
    seed: Seed,
    dtype: torch.dtype | None,
    consume: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Payload, scale and zero point in floating dtypes, ``split``."""
    exact = split(values.to(computing_dtype(values.dtype)), blocks)
    low, high = _range(exact, blocks, symmetric)
    scale, below = (_scale(high, QMAX), None) if symmetric else _grid(low, high, dtype or values.dtype, rounding)
    steps = round_(exact.div_(scale) if consume else exact / scale, rounding, generator, seed)
    if below is None:  # rounding to the nearest can't leave the range: v / s is 127 at most, up to rounding
        return steps if rounding == NEAREST else steps.clamp_(-QMAX, QMAX), scale, None
    zero_point = (below + QMIN).nan_to_num_(0.0)
    return steps.add_(zero_point).clamp_(QMIN, QMAX), scale, zero_point


def dequantized(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    blocks: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """``(qdata - zero_point) * scale``, computed in float32 (float64 for that) and rounded once to ``dtype``."""
    steps = split(qdata.to(computing_dtype(dtype)), blocks)
    if zero_point is not None:
        steps.sub_(per_block(zero_point, blocks))
    return steps.mul_(per_block(scale, blocks)).to(dtype).reshape(qdata.shape)


def overwrite(target: Quantized, new: Quantized, non_blocking: bool = False) -> None:
    """Copies ``new`` into the memory of ``target``. Both have a zero point, or none."""
    for old, fresh in zip(target, new, strict=True):
        if old is not None and fresh is not None:
            old.copy_(fresh, non_blocking)


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 for values of that dtype."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def has_groups(blocks: Sequence[int]) -> bool:
    """Whether a scale does not simply broadcast to the values."""
    return any(block > 1 for block in blocks)


def split(values: torch.Tensor, blocks: Sequence[int]) -> torch.Tensor:
    """A view of ``values`` to which ``per_block(scale)`` broadcasts: a dim in groups is two, (groups, size of a group).
    Where there are no groups, ``values`` itself."""
    if not has_groups(blocks):
        return values
    sizes: list[int] = []
    for size, block in zip(values.shape, blocks, strict=True):
        sizes += [size // block, block] if block > 1 else [size]
    return values.reshape(sizes)


def per_block(scale: torch.Tensor, blocks: Sequence[int]) -> torch.Tensor:
    """``scale``, with a dim of size 1 behind each that is in groups."""
    for dim in reversed(range(len(blocks))):
        if blocks[dim] > 1:
            scale = scale.unsqueeze(dim + 1)
    return scale


def _range(exact: torch.Tensor, blocks: Sequence[int], symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends of each block's range, zero included. ``exact`` is split."""
    low, high = _reduced(torch.amin, exact, blocks), _reduced(torch.amax, exact, blocks)
    if symmetric:
        return low, torch.maximum(-low, high)
    return low.clamp(max=0), high.clamp(min=0)


def _reduced(reduce: Callable[..., torch.Tensor], exact: torch.Tensor, blocks: Sequence[int]) -> torch.Tensor:
    dims, at = [], 0
    for block in blocks:
        at += block > 1
        if block != 1:
            dims.append(at)
        at += 1
    if exact.numel() == 0:  # blocks of no values; amax refuses them
        return exact.new_zeros([1 if dim in dims else size for dim, size in enumerate(exact.shape)])
    return reduce(exact, dims, keepdim=True) if dims else exact


def _scale(length: torch.Tensor, steps: int) -> torch.Tensor:
    """A range in ``steps``. NaN where the result, times ``steps``, would be infinite: as the scale it makes NaN of all
    values, where an infinite one would leave some infinite."""
    scale = (length / steps).float()
    # The largest float32 whose product with ``steps`` is finite; rounding can make the quotient one ulp larger.
    largest = torch.finfo(torch.float32).max / steps * (1 - 2**-23)
    return torch.where(scale > largest * (1 + 2**-20), torch.nan, scale.clamp(SMALLEST_SCALE, largest))


def _grid(
    low: torch.Tensor, high: torch.Tensor, dtype: torch.dtype, rounding: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The scale of an asymmetric range that decodes to ``dtype``, and how many of its steps lie below zero."""
    steps = QMAX - QMIN
    even = _scale(high - low, steps)
    larger, smaller = torch.maximum(-low, high), torch.minimum(-low, high)
    share = smaller / even
    few = torch.where(2 * smaller < larger, (share - _SLACK).ceil(), share.round()).clamp(0, steps // 2)
    # Less than half a step on one side of zero: to the nearest it is zero, at random it may be a step.
    few = torch.where(share < 0.5, 0, few) if rounding == NEAREST else torch.maximum(few, (smaller > 0).to(few.dtype))
    many = steps - few
    needed = torch.maximum(larger / many, smaller / few.clamp(min=1)).float().clamp(min=SMALLEST_SCALE)
    finite = torch.finfo(torch.float32).max / many.float() * (1 - 2**-23)
    scale = torch.where(even.isnan(), even, torch.minimum(needed, finite))
    below = torch.where(high < -low, many, few)
    if dtype in (torch.float16, torch.bfloat16):
        scale = _reaching(scale, torch.maximum(-low, high), torch.finfo(dtype).max)
    return scale, below


def _reaching(scale: torch.Tensor, end: torch.Tensor, largest: float) -> torch.Tensor:
    """``scale``; where ``end`` may round to beyond ``largest``, which decodes to infinity, one that ``largest`` is a
    multiple of. It is larger, so that 255 steps hold the range all the same."""
    beyond = (end <= largest) & ((end / scale).ceil() * scale > largest)
    return torch.where(beyond, largest / (largest / scale).floor(), scale)
