"""Scales that are shared in blocks: along the contracted dim, along the columns, or along both.

For a payload of shape (K, N), ``scale.shape[d]`` is 1, the size of dim ``d``, or the number of groups along it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .activations import sums


class Factors(NamedTuple):
    """A scale that is one factor an input (``rows``, (K, 1)), or one an output (``columns``, (1, N) or (1, 1)): the
    other is None.
    """

    rows: torch.Tensor | None
    columns: torch.Tensor | None

    def scaled(self, a: torch.Tensor) -> torch.Tensor:
        """``a``, (M, K), times the inputs' factors."""
        return a if self.rows is None else a * self.rows.t()


def factors(scale: torch.Tensor, rows: int, columns: int) -> Factors | None:
    """``scale`` as a factor of one side. None where it varies along both dims: then it can't leave the sum."""
    along_rows, along_columns = scale.shape
    if along_rows == 1:
        return Factors(None, scale if along_columns in (1, columns) else repeated(scale, 1, columns))
    if along_columns == 1:
        return Factors(scale if along_rows == rows else repeated(scale, 0, rows), None)
    return None


def repeated(scale: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Each group's number once for each of its members, so that dim ``dim`` has ``size``. A size of 1 stays."""
    groups = scale.shape[dim]
    return scale if groups in (1, size) else scale.repeat_interleave(size // groups, dim)


def decode_(values: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    """``(values - zero_point) * scale`` in place, for a payload that is float32 or float64 already."""
    steps = _split(values, scale)
    if zero_point is not None:
        steps -= _beside(zero_point)
    steps *= _beside(scale)
    return values


def _split(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Each dim as two, (groups, members), to which ``_beside(scale)`` broadcasts: a view, whatever the strides. For two
    dims it takes 1 us less than ``numerics.split``, which is for any number."""
    rows, columns = values.shape
    groups, sets = scale.shape
    return values.view(groups, rows // groups, sets, columns // sets)


def _beside(scale: torch.Tensor) -> torch.Tensor:
    return scale[:, None, :, None]


def zero_point_product(
    codes: torch.Tensor, zero_point: torch.Tensor, shape: torch.Size, by_columns: bool
) -> torch.Tensor:
    """``codes @ zero_point``, the latter in the payload's ``shape``: (R, 1), or (R, N) if columns have their own."""
    if by_columns:
        return sums(codes, None) * repeated(zero_point, 1, shape[1])
    return sums(codes, repeated(zero_point, 0, shape[0]))
