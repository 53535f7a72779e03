"""Activations as integers: one step a row, and 8 or 16 bits an element.

A row ``x`` of peak ``p = max |x|`` gets the step ``s = p / L`` and the codes ``v = round(x / s)``, ``|v| <= L``.

``int8``: ``L = 127``. ``|x - s v| <= s (1/2 + 2^-16)``: half a step, and the roundings of ``1 / s`` and of the product.
``int16``: ``L = 32639``, and ``v = 256 h + l`` with ``h`` and ``l`` in -128..127, two rows of int8 for each row. ``L``
is the largest that leaves room for both: ``256 * 127 + 127``. ``|x - s v| <= s (1/2 + 2^-8)``.

So for a product with the decoded weight ``w``, ``|x @ w - result| <= s (1/2 + 2^-8) sum_k |w_k|``, plus the roundings
of float32. For rows of normal values, of peak some 3.5 sigma at 2048 elements, the error of the codes alone is
``s / sqrt(12)``: 41 dB below the row for int8 and 90 dB for int16.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

# Adding it leaves the value, rounded half to even, in the low bits of a float32: a rounding and a conversion in one.
_INTEGERS = 1.5 * 2**23
_BYTE = torch.tensor(8, dtype=torch.int32)  # in bits: a tensor costs 1.5 us less than a number, which torch wraps
# The zero of the uint8 codes. oneDNN's int8 kernels for CPUs take unsigned activations (signed ones run in a reference
# loop, a thousand times slower).
UNSIGNED_ZERO = 128
# Rows whose peak lies above are multiplied as floats, NaN and infinity among them; so are rows below that are not zero:
# s has to be a normal number.
LARGEST_PEAK = 2.0**100
SMALLEST_PEAK = 2.0**-108
LEVELS = {False: 127, True: 32639}  # by whether there are halves
_WEIGHTS = torch.tensor([[256.0, 1.0]], dtype=torch.float32)  # of the halves
# By halves and unsigned: the integers' offset, and the zero's of each byte.
_NUMBERS = {
    (halves, unsigned): _INTEGERS + unsigned * (UNSIGNED_ZERO * (257 if halves else 1))
    for halves in (False, True)
    for unsigned in (False, True)
}
_OFFSETS = {key: torch.tensor([[number]]) for key, number in _NUMBERS.items()}


def peaks(a: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each row, of shape (M, 1). NaN where the row has one. ``a.abs()`` would need memory."""
    return torch.maximum(a.amax(1, keepdim=True), a.amin(1, keepdim=True).neg_())


class Steps(NamedTuple):
    """The step of each row and its inverse, (M, 1); numbers for a single row, which saves small tensors."""

    step: torch.Tensor | float
    inverse: torch.Tensor | float
    largest: float


def row_steps(exact: torch.Tensor, halves: bool) -> Steps | None:
    """None where a peak is too large, or too small and not zero, or none at all. Waits for the values."""
    levels = LEVELS[halves]
    if exact.shape[0] == 1:
        low, high = torch.aminmax(exact)
        peak = max(-float(low), float(high))  # NaN, which is both ends if there is one, stays
        if not (SMALLEST_PEAK <= peak < LARGEST_PEAK or peak == 0):
            return None
        peak = peak or SMALLEST_PEAK
        return Steps(peak / levels, levels / peak, peak / levels)
    rows = peaks(exact)
    least, most = (float(end) for end in torch.aminmax(rows))
    if not most < LARGEST_PEAK:
        return None
    if least < SMALLEST_PEAK:
        if bool(((rows > 0) & (rows < SMALLEST_PEAK)).any()):
            return None
        rows.clamp_(min=SMALLEST_PEAK)  # rows of zeros
    step = rows.mul_(1 / levels)
    return Steps(step, step.reciprocal(), max(most, SMALLEST_PEAK) / levels)


def encoded(a: torch.Tensor, inverse_step: torch.Tensor | float, halves: bool, unsigned: bool) -> torch.Tensor:
    """The codes of the rows of ``a`` (float32, (M, K)): int8, or uint8 with the zero at 128.

    With ``halves`` the result is (2 M, K): the high halves of all rows, then the low ones. ``inverse_step`` is a number
    where there is one row, else of shape (M, 1).
    """
    if isinstance(inverse_step, float):
        bits = torch.add(_OFFSETS[halves, unsigned], a, alpha=inverse_step).view(torch.int32)
    else:
        bits = (a * inverse_step).add_(_NUMBERS[halves, unsigned]).view(torch.int32)
    if halves:
        return _halves(bits, unsigned)
    return bits.byte() if unsigned else bits.char()


def _halves(bits: torch.Tensor, unsigned: bool) -> torch.Tensor:
    """The low byte, read as signed, is l; what is left over for h is rounded to the nearest. Overwrites ``bits``."""
    dtype = torch.uint8 if unsigned else torch.int8
    if bits.shape[0] == 1:  # fewer calls
        return torch.cat(((bits if unsigned else bits + UNSIGNED_ZERO) >> _BYTE, bits)).to(dtype)
    low = bits.to(dtype)
    if not unsigned:
        bits += UNSIGNED_ZERO
    bits >>= _BYTE
    return torch.cat((bits.to(dtype), low))


def sums(codes: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """The sum of each row of codes, weighted if asked, as float32 of shape (R, 1)."""
    values = codes.float()
    if codes.dtype is torch.uint8:
        values -= UNSIGNED_ZERO
    return values.sum(1, keepdim=True) if weights is None else values @ weights.float()


def joined(products: torch.Tensor) -> torch.Tensor:
    """The products of halves as those of the whole codes: float32, (2 M, N) to (M, N)."""
    rows = products.shape[0] // 2
    if rows == 1 and products.is_cpu:  # where _WEIGHTS is
        return torch.mm(_WEIGHTS, products)
    return torch.add(products[rows:], products[:rows], alpha=256)
