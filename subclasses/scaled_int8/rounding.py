"""Rounding to integers: to the nearest, or up with a probability of the fraction.

Stochastic rounding is unbiased: a weight that an optimizer moves by less than half a step moves on average all the
same, where rounding to the nearest would never move it.
"""

from __future__ import annotations

import torch

from .errors import QuantizationError

NEAREST, STOCHASTIC = "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)

# MurmurHash3's 32-bit finalizer: shift, multiply, shift, multiply, shift. Every bit of the input reaches every bit.
_SHIFTS, _FACTORS = (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35)
_MASK = 0xFFFFFFFF


def round_(
    steps: torch.Tensor,
    rounding: str,
    generator: torch.Generator | None = None,
    seed: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """``steps`` (floating) rounded to integers. Its memory is used for the work.

    ``"nearest"``: half to even. ``"stochastic"``: up with a probability of the fraction, so the mean is ``steps`` (to
    2^-24). Its random numbers come from ``generator``, or are a function of ``seed`` and the place in the tensor, or
    come from the default generator of the device.
    """
    if rounding == NEAREST:
        return steps.round_()
    numbers = _uniform(steps, generator, seed)
    below = steps.floor()
    return below.add_(numbers < steps.sub_(below))


def check_source(rounding: str, generator: torch.Generator | None, seed: torch.Tensor | int | None) -> None:
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


def _uniform(like: torch.Tensor, generator: torch.Generator | None, seed: torch.Tensor | int | None) -> torch.Tensor:
    """Numbers in [0, 1), multiples of 2^-24, in the shape of ``like``."""
    if seed is not None:
        return _hashed(like, seed)
    if generator is not None:
        return torch.rand(like.shape, generator=generator, device=like.device)
    return torch.rand_like(like, dtype=torch.float32)


def _hashed(like: torch.Tensor, seed: torch.Tensor | int) -> torch.Tensor:
    """A hash of the seed and of each place. The same in eager and compiled code, where no generator can be passed."""
    if isinstance(seed, torch.Tensor) and seed.is_meta and not like.is_meta:
        raise QuantizationError(f"seed is on {seed.device} and has no data; the values are on {like.device}.")
    whole = torch.as_tensor(seed, device=like.device).reshape(()).to(torch.int64)
    key = _mixed(_mixed(whole & _MASK) ^ ((whole >> 32) & _MASK))
    places = torch.arange(like.numel(), device=like.device).reshape(like.shape) & _MASK
    hashed = _mixed((_mixed(places ^ key) + key) & _MASK)
    return (hashed >> 8).float() * 2**-24


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    """Scrambles 32 bits, held in int64: products wrap, and their low 32 bits are right."""
    for shift, factor in zip(_SHIFTS, (*_FACTORS, None), strict=True):
        bits = bits ^ (bits >> shift)
        if factor is not None:
            bits = (bits * factor) & _MASK
    return bits
