"""Which values share a scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch


class Granularity(ABC):
    """Which values share a scale. Instances are immutable, hashable and compared by value: they guard compilation.

    A scale keeps the rank of the values. Along each dim its size is that of the values (one scale each), or 1 (shared
    along the whole dim). So a transposed tensor needs no other granularity: its scale is transposed.
    """

    @abstractmethod
    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the scale for values of ``shape``."""


@dataclass(frozen=True)
class PerRow(Granularity):
    """One scale for each row: for all values along the last dim. A tensor without dims is a row of one value.

    >>> PerRow().scale_shape((4, 3))
    (4, 1)
    """

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], 1) if shape else ()


PER_ROW = PerRow()

torch.serialization.add_safe_globals([PerRow])
