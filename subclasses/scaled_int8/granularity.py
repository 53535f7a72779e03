"""Which values share a scale, and how that follows the data through views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from .errors import GridError, QuantizationError

WHOLE = -1  # a block as long as its dim


class Granularity(ABC):
    """Which values share a scale. Instances are immutable, hashable and compared by value: they guard compilation.

    A scale keeps the rank of the values. The granularity says, for each dim, how many neighbours share a scale: 1 (each
    has its own), a group size, or ``WHOLE`` (-1: all along the dim). Those are the ``blocks``.
    """

    @abstractmethod
    def blocks(self, rank: int) -> tuple[int, ...]:
        """The length of a block along each dim of a tensor with ``rank`` dims."""

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the scale for values of ``shape``.

        Raises:
            GridError: a group size doesn't divide its dim.
        """
        return scale_shape(shape, self.blocks(len(shape)))


@dataclass(frozen=True)
class PerTensor(Granularity):
    """One scale for all values.

    >>> PerTensor().scale_shape((4, 6))
    (1, 1)
    """

    def blocks(self, rank: int) -> tuple[int, ...]:
        return (WHOLE,) * rank


@dataclass(frozen=True)
class PerRow(Granularity):
    """One scale for each row: for all values along the last dim. A tensor without dims is a row of one value.

    >>> PerRow().scale_shape((4, 6))
    (4, 1)
    """

    def blocks(self, rank: int) -> tuple[int, ...]:
        return (*(1,) * (rank - 1), WHOLE) if rank else ()


@dataclass(frozen=True)
class PerGroup(Granularity):
    """One scale for each ``size`` neighbours along the last dim, whose length ``size`` divides.

    >>> PerGroup(3).scale_shape((4, 6))
    (4, 2)
    """

    size: int

    def __post_init__(self) -> None:
        _check_block(self, "size", self.size, 1)

    def blocks(self, rank: int) -> tuple[int, ...]:
        if rank == 0:
            raise QuantizationError(f"{self} groups the last dim, and the tensor has none. Use PerTensor().")
        return (*(1,) * (rank - 1), self.size)


@dataclass(frozen=True)
class PerBlock(Granularity):
    """One scale for each block: ``shape`` says how many neighbours along each dim, -1 for all of them. A cut through
    blocks that somebody chose is an error; not ``chosen`` are those that come of rows, which a view put in line.

    >>> PerBlock((2, -1)).scale_shape((4, 6))
    (2, 1)
    """

    shape: tuple[int, ...]
    chosen: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (tuple, list)):
            raise QuantizationError(f"PerBlock: shape is {self.shape!r}; it holds the length of a block for each dim.")
        object.__setattr__(self, "shape", tuple(self.shape))
        for block in self.shape:
            _check_block(self, "shape", block, 1, WHOLE)

    def blocks(self, rank: int) -> tuple[int, ...]:
        if rank != len(self.shape):
            raise QuantizationError(f"{self} has {len(self.shape)} dims, and the tensor {rank}: they have to agree.")
        return self.shape


def scale_shape(shape: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    """The shape of the scale for values of ``shape``, in ``blocks``."""
    return tuple(_blocks_in(shape, blocks, dim) for dim in range(len(blocks)))


def _blocks_in(shape: Sequence[int], blocks: Sequence[int], dim: int) -> int:
    size, block = shape[dim], blocks[dim]
    if block == 1:
        return size
    if block == WHOLE:
        return 1
    if size % block:
        raise GridError(
            f"groups of {block} don't divide dim {dim} of a tensor of shape {tuple(shape)}: use a group size that "
            f"divides {size}, or pad the dim to {(size // block + 1) * block}."
        )
    return size // block


@lru_cache(maxsize=1024)
def follow(granularity: Granularity, blocks: tuple[int, ...]) -> Granularity:
    """The granularity with these ``blocks``: ``granularity`` itself where it has them, else the simplest there is."""
    if not isinstance(granularity, PerBlock) and _blocks_of(granularity, len(blocks)) == blocks:
        return granularity
    for simple in (PerRow(), PerTensor()):
        if simple.blocks(len(blocks)) == blocks:
            return simple
    if not chose_groups(granularity):
        return PerBlock(blocks, chosen=max(blocks) <= 1)
    if blocks[-1] > 1 and set(blocks[:-1]) <= {1}:
        return PerGroup(blocks[-1])
    return PerBlock(blocks)


def chose_groups(granularity: Granularity) -> bool:
    """Whether there are groups, and somebody asked for them."""
    grouped = isinstance(granularity, PerBlock) and granularity.chosen and max(granularity.shape, default=1) > 1
    return grouped or isinstance(granularity, PerGroup)


def _blocks_of(granularity: Granularity, rank: int) -> tuple[int, ...] | None:
    return granularity.blocks(rank) if rank else None


def _check_block(owner: Granularity, name: str, block: object, *least: int) -> None:
    if not isinstance(block, int) or isinstance(block, bool) or (block < 1 and block not in least):
        raise QuantizationError(
            f"{type(owner).__name__}: {name} holds {block!r}; the length of a block is a positive int"
            + (", or -1 for a whole dim." if WHOLE in least else ".")
        )


PER_ROW = PerRow()

torch.serialization.add_safe_globals([PerTensor, PerRow, PerGroup, PerBlock])
