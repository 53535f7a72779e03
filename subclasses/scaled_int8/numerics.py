"""The arithmetic: values to an int8 payload and a float32 scale, and back. Symmetric, round half to even.

``|v - q s| <= s (1/2 + 2^-15)`` for every finite value ``v``, with its scale ``s`` and payload ``q``: half a step, the
roundings of ``amax / 127``, ``v / s`` and ``q s`` (each at most ``127 * 2^-24`` steps) and one more for each float32
operation between. Decoding to bfloat16 or float16 adds the rounding to that dtype.
"""

from __future__ import annotations

import torch

QMAX = 127  # not 128: a symmetric range
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# The smallest normal float32: a smaller scale would have few bits, or none. Rows of zeros and denormals get this one.
SMALLEST_SCALE = torch.finfo(torch.float32).tiny
# The largest float32 whose 127-fold is finite: amax / 127, rounded up, can be one above.
LARGEST_SCALE = (torch.finfo(torch.float32).max / QMAX) * (1 - 2**-23)


def quantized(values: torch.Tensor, scale_shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The payload and the scale (of ``scale_shape``: each dim that of the values, or 1) that stand for ``values``.

    A row of zeros has a payload of zeros. A row with a NaN or an infinite value, or with one that is too large for a
    float32 scale, has a scale that is NaN or infinite: all of it decodes to NaN.
    """
    exact = values.to(computing_dtype(values.dtype))
    scale = (_largest(exact.abs(), scale_shape) / QMAX).float()
    scale = torch.where(scale.isinf(), scale, scale.clamp(SMALLEST_SCALE, LARGEST_SCALE))
    payload = (exact / scale).round().clamp(-QMAX, QMAX).to(torch.int8)
    return payload, scale


def dequantized(qdata: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``qdata * scale``, computed in float32 (float64 for that) and rounded once to ``dtype``."""
    return (qdata.to(computing_dtype(dtype)) * scale).to(dtype)


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 for values of that dtype."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _largest(magnitudes: torch.Tensor, scale_shape: tuple[int, ...]) -> torch.Tensor:
    if magnitudes.numel() == 0:  # a row of no values; amax refuses it
        return magnitudes.new_zeros(scale_shape)
    shared = [dim for dim, size in enumerate(scale_shape) if size == 1]
    return magnitudes.amax(shared, keepdim=True) if shared else magnitudes
