"""Rounding to integers: to the nearest, or up with a probability of the fraction.

Stochastic rounding is unbiased: a weight that an optimizer moves by less than half a step moves on average all the
same, where rounding to the nearest would never move it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.private import is_tracing
from .errors import QuantizationError

Seed = torch.Tensor | int | None
NEAREST, STOCHASTIC = "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)

# MurmurHash3's 32-bit finalizer: shift, multiply, shift, multiply, shift. Every bit of the input reaches every bit.
_SHIFTS, _FACTORS = (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35)
_MASK = 0xFFFFFFFF


def round_(
    steps: torch.Tensor,
    rounding: str,
    generator: torch.Generator | None = None,
    seed: Seed = None,
) -> torch.Tensor:
    """``steps`` (floating) rounded to integers. Its memory is used for the work.

    ``"nearest"``: half to even. ``"stochastic"``: up with a probability of the fraction, so the mean is ``steps`` (to
    2^-24). Its random numbers are a function of the place in the tensor and of ``seed``, or of a number drawn from
    ``generator``, or from the default generator of the device.
    """
    if rounding == NEAREST:
        return steps.round_()
    numbers = _uniform(steps, generator, seed)
    below = steps.floor()
    return below.add_(numbers < steps.sub_(below))


def check_source(rounding: str, generator: torch.Generator | None, seed: Seed) -> None:
    """Random numbers come from one place, and only where some are drawn.

    Raises:
        QuantizationError: both are given, or one that is not used, or that is no generator, or no integer of 64 bits.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise QuantizationError(f"generator = {generator!r} is no torch.Generator. Did you mean seed = {generator!r}?")
    if generator is not None and seed is not None:
        raise QuantizationError("both generator and seed are given: random numbers come from one of them.")
    if rounding == NEAREST and (generator is not None or seed is not None):
        name = "seed" if generator is None else "generator"
        raise QuantizationError(f'{name} is given, and rounding="nearest" draws no numbers. Ask for "stochastic".')
    if isinstance(seed, torch.Tensor):
        if seed.numel() != 1 or seed.dtype is torch.bool or seed.is_floating_point() or seed.is_complex():
            raise QuantizationError(f"seed is one integer, got {seed.dtype} of shape {tuple(seed.shape)}.")
    elif seed is not None and (not isinstance(seed, (int, torch.SymInt)) or isinstance(seed, bool)):
        raise QuantizationError(f"seed is an integer, or a tensor of one; got {seed!r}.")
    elif seed is not None and not -(2**63) <= seed < 2**63:
        raise QuantizationError(f"seed = {seed} has more than 64 bits.")


def _uniform(like: torch.Tensor, generator: torch.Generator | None, seed: Seed) -> torch.Tensor:
    """Numbers in [0, 1), multiples of 2^-24, in the shape of ``like``: a hash of the seed and of each place, so that
    eager and compiled code, which can't be passed a generator, agree. A generator is asked for the seed only: drawing
    each number from it takes three times as long."""
    if isinstance(seed, torch.Tensor) and seed.is_meta and not like.is_meta:
        raise QuantizationError(f"seed is on {seed.device} and has no data; the values are on {like.device}.")
    if seed is None:
        seed = torch.randint(2**31 - 1, (), generator=generator, device=like.device)
        if type(seed) is torch.Tensor and seed.is_cpu and not is_tracing():
            seed = int(seed)  # Python is faster with single numbers
    elif isinstance(seed, torch.Tensor):
        seed = seed.to(like.device, torch.int64).reshape(())
    first = _mixed(_mixed(seed & _MASK) ^ ((seed >> 32) & _MASK))
    wide = torch.int64 if like.numel() > 2**31 else torch.int32
    places = torch.arange(like.numel(), device=like.device, dtype=wide).to(torch.int32)
    bits = places.mul_(_signed(_mixed(first) | 1)).add_(_signed(first))
    return _mixed_(bits).bitwise_and_(2**24 - 1).to(torch.float32).mul_(2**-24).reshape(like.shape)


def _mixed(bits: Any) -> Any:
    """Scrambles 32 bits of an int, or of an int64 tensor."""
    for shift, factor in zip(_SHIFTS, (*_FACTORS, 1), strict=True):
        bits = ((bits ^ (bits >> shift)) * factor) & _MASK
    return bits


def _mixed_(bits: torch.Tensor) -> torch.Tensor:
    """The same in place, of int32: products wrap, and a shift brings in copies of the sign, which are masked."""
    for shift, factor in zip(_SHIFTS, (*_FACTORS, 1), strict=True):
        bits.bitwise_xor_((bits >> shift).bitwise_and_(_MASK >> shift))
        if factor != 1:
            bits.mul_(_signed(factor))
    return bits


def _signed(bits: Any) -> Any:
    """32 bits as a number that int32 holds."""
    return ((bits + 2**31) & _MASK) - 2**31
