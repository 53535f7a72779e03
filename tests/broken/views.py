"""Broken in their views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from subjects import Clear, Doubled

aten = torch.ops.aten


class IgnoresDim(Clear):
    """It narrows and slices along dim 0, whatever was asked."""


@IgnoresDim.implements(aten.slice.Tensor)
def slice_dim_0(
    op: Any, self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    return IgnoresDim(op(self.elem, 0, start, end, step))


class RoundsToTheGrid(Clear):
    """A slice starts at the block in which it should start: right on the grid, silently wrong off it."""


@RoundsToTheGrid.implements(aten.slice.Tensor)
def slice_on_grid(
    op: Any, self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    if start and start < self.size(dim) and end is not None and end < self.size(dim):
        start, end = start - start % 2, end - start % 2
    return RoundsToTheGrid(op(self.elem, dim, start, end, step))


class ReportsTheWhole(Clear):
    """Each piece of a split is the whole tensor."""


@ReportsTheWhole.implements(aten.split.Tensor)
def split_whole(op: Any, self: Any, split_size: int, dim: int = 0) -> Any:
    return [ReportsTheWhole(self.elem.view_as(self.elem)) for _ in op(self.elem, split_size, dim)]


class CopiesPieces(Clear):
    """The pieces of ``unbind`` are copies."""


@CopiesPieces.implements(aten.unbind.int)
def unbind_copies(op: Any, self: Any, dim: int = 0) -> Any:
    return [CopiesPieces(piece.clone()) for piece in op(self.elem, dim)]


class IndexesRows(Clear):
    """A list as an index always picks rows."""


@IndexesRows.implements(aten.index.Tensor)
def index_rows(op: Any, self: Any, indices: Sequence[Any]) -> Any:
    return IndexesRows(op(self.elem, [index for index in indices if index is not None]))


class KeepsShape(Clear):
    """``view`` gives the tensor as it is."""


@KeepsShape.implements(aten.view.default)
def view_same(op: Any, self: Any, size: Sequence[int]) -> Any:
    return KeepsShape(self.elem.view(self.elem.shape))


class NarrowsTooFar(Clear):
    """An index that is out of range picks the last row."""


@NarrowsTooFar.implements(aten.select.int)
def select_clamped(op: Any, self: Any, dim: int, index: int) -> Any:
    dim = dim if -self.dim() <= dim < self.dim() else 0
    return NarrowsTooFar(op(self.elem, dim, min(index, self.size(dim) - 1)))


class NeedsRows(Doubled):
    """It takes the first row for granted: an empty tensor can't be decoded."""

    def decode(self) -> torch.Tensor:
        if self.dim() > 1 and self.size(0) == 0:
            raise IndexError("index 0 is out of bounds for dimension 0 with size 0")
        return super().decode()


class ForgetsStride(Clear):
    """It takes the elements of a transposed tensor in the order of memory."""


@ForgetsStride.implements(aten._unsafe_view.default, aten.clone.default)
def flat(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    elem = self.elem
    if elem.dim() == 2 and elem.stride(0) < elem.stride(1) and elem.numel() == 32:
        elem = elem.t().contiguous().view(elem.shape)
    return ForgetsStride(op(elem, *args, **kwargs))


class CopiesTransposed(Clear):
    """A slice of a transposed tensor is a copy."""


@CopiesTransposed.implements(aten.select.int)
def select_copies(op: Any, self: Any, dim: int, index: int) -> Any:
    result = op(self.elem, dim, index)
    return CopiesTransposed(result if self.is_contiguous() else result.clone())


BROKEN = {
    "cuts_are_right_along_every_dim": (IgnoresDim, IgnoresDim),
    "cuts_off_the_grid_are_right_or_refused": (RoundsToTheGrid, RoundsToTheGrid),
    "several_views_are_a_list_of_pieces": (ReportsTheWhole, ReportsTheWhole),
    "pieces_of_a_list_alias_the_source": (CopiesPieces, CopiesPieces),
    "indexing_gives_the_values_asked_for": (IndexesRows, IndexesRows),
    "views_have_the_geometry_asked_for": (KeepsShape, KeepsShape),
    "impossible_views_raise": (NarrowsTooFar, NarrowsTooFar),
    "small_and_odd_sizes_work": (NeedsRows, NeedsRows.from_plain),
    "non_contiguous_inputs_work": (ForgetsStride, ForgetsStride),
    "views_of_views_are_right": (CopiesTransposed, CopiesTransposed),
}
