"""How near a product is to the exact one, and how near it must be: in decibels of signal to quantization noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..trials import WrongResultError

# What a result is that has no error at all: the logarithm of zero is nothing to print or to write into JSON.
MOST_DECIBELS = 300.0


@dataclass(frozen=True)
class Accuracy:
    """What a way to multiply must give against the product with its own dequantized weight, in decibels.

    More than the range holds is as wrong as less: then another path ran than the one that is to be timed. A result in
    bfloat16 is rounded to 8 bits, some 52 dB, which hides what is better.
    """

    name: str
    in_float32: tuple[float, float]
    in_bfloat16: tuple[float, float]

    def check(self, decibels: float, dtype: torch.dtype) -> None:
        """Raise WrongResultError unless the figure is what this way to multiply gives in a result of this dtype."""
        low, high = self.in_float32 if dtype is torch.float32 else self.in_bfloat16
        if not low <= decibels <= high:
            raise WrongResultError(
                f"wrong result: {decibels:.1f} dB against the product with the dequantized weight; "
                f"{self.name} gives {low:.0f} to {high:.0f}"
            )


# Between 8-bit activations, some 43 dB, and the rounding of a bfloat16 result.
BETWEEN = 47.5
FLOAT = Accuracy("a float product", (100.0, MOST_DECIBELS), (BETWEEN, MOST_DECIBELS))
SIXTEEN_BITS = Accuracy("a product of 16-bit activations", (70.0, 115.0), (BETWEEN, MOST_DECIBELS))
EIGHT_BITS = Accuracy("a product of 8-bit activations", (30.0, 60.0), (30.0, BETWEEN))
ANY = Accuracy("a product of 8, 16 or more bits", (30.0, MOST_DECIBELS), (30.0, MOST_DECIBELS))


def decibels(result: Tensor, exact: Tensor) -> float:
    """Signal to noise of `result` against `exact`: 10 log10(|exact|^2 / |result - exact|^2)."""
    signal = float(exact.square().sum())
    noise = float((result.to(exact.dtype) - exact).square().sum())
    if not math.isfinite(noise):
        return -MOST_DECIBELS
    ratio = max(noise, signal * 10 ** (-MOST_DECIBELS / 10)) / signal if signal else 1.0
    return -10 * math.log10(ratio)


class References:
    """Exact products, in float64, of the same activations with several weights; each weight is multiplied once."""

    def __init__(self, activations: Tensor) -> None:
        self._activations = activations.double()
        self._known: list[tuple[Tensor, Tensor]] = []

    def product(self, weight: Tensor) -> Tensor:
        """The exact product with this weight."""
        for known, product in self._known:
            if known is weight or (known.dtype is weight.dtype and torch.equal(known, weight)):
                return product
        product = self._activations @ weight.double().t()
        self._known.append((weight, product))
        return product
