"""Rules for ``view`` and ``as_strided``: which changes of shape keep rows or groups whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..core.private import OpOverload, is_alias
from .build import alias, applied, viewed
from .granularity import WHOLE, scale_shape
from .tensor import ScaledInt8Tensor
from .views import expand, permute, select, slice_, unsqueeze

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)
def view(op: OpOverload, self: Any, size: Sequence[int], *stride: Any) -> Any:
    """Stays int8 where each new dim holds whole blocks, or parts of a dim each of whose values has its own scale. Rows
    that a flat view puts in line are groups."""
    reshape = applied(op, size, *stride)
    shape = reshape(self.qdata).shape
    blocks = reshaped(tuple(self.shape), self.blocks, tuple(shape))
    if blocks is None:
        return ScaledInt8Tensor.super_rule(op)(self, size, *stride)
    scales = scale_shape(shape, blocks)
    if not is_alias(self.scale.reshape(scales), self.scale):  # a write to the view would miss the scale
        return ScaledInt8Tensor.super_rule(op)(self, size, *stride)
    return viewed(self, reshape, lambda scale: scale.reshape(scales), blocks)


def reshaped(old: tuple[int, ...], blocks: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """The blocks of a tensor of shape ``old``, after a view to shape ``new``; None where they are blocks no more.

    >>> reshaped((4, 6), (1, -1), (2, 2, 6))
    (1, 1, -1)
    >>> reshaped((4, 6), (1, -1), (24,))
    (6,)
    >>> reshaped((4, 6), (1, -1), (8, 3))
    (2, -1)
    >>> reshaped((4, 6), (1, -1), (6, 4)) is None
    True
    """
    if old == new:
        return blocks
    if 0 in old:
        return None
    if set(blocks) <= {WHOLE}:
        return (WHOLE,) * len(new)
    result: list[int] = []
    for own, theirs in _segments(old, new):
        sizes, kept = [old[d] for d in own], [blocks[d] for d in own]
        if [new[d] for d in theirs] == sizes:
            result += kept
            continue
        run = _run(sizes, kept)
        pieces = None if run is None else _laid_out(run, [new[d] for d in theirs])
        if pieces is None:
            return None
        result += pieces
    return tuple(result)


def _segments(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of dims of ``old`` and of ``new`` that hold the same values."""
    i = j = 0
    while i < len(old) or j < len(new):
        first, second, left, right = i, j, 1, 1
        while left != right or (i, j) == (first, second):
            if i < len(old) and (left < right or i == first):
                left, i = left * old[i], i + 1
            if j < len(new) and (right < left or j == second):
                right, j = right * new[j], j + 1
        yield list(range(first, i)), list(range(second, j))


def _run(sizes: list[int], blocks: list[int]) -> int | None:
    """How many values in line share a scale. None where a block isn't in line: of ``sizes`` (2, 3), those that share
    one along dim 0 only."""
    run, covered = 1, True  # covered: a block holds all of the dims seen
    for size, block in zip(reversed(sizes), reversed(blocks), strict=True):
        length = size if block == WHOLE else block
        if covered:
            run, covered = run * length, length == size
        elif length != 1:
            return None
    return run


def _laid_out(run: int, sizes: list[int]) -> list[int] | None:
    """The blocks along dims of ``sizes`` such that ``run`` neighbours in line share a scale."""
    blocks: list[int] = []
    for size in reversed(sizes):
        if run == 1:
            blocks.append(1)
        elif run % size == 0:
            blocks.append(WHOLE)
            run //= size
        elif size % run == 0:
            blocks.append(run)
            run = 1
        else:
            return None
    return blocks[::-1]


@ScaledInt8Tensor.implements(aten.as_strided.default)
def as_strided(
    op: OpOverload, self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None
) -> Any:
    """Compiled code asks for the views that it returns by their geometry: slices of reordered dims stay int8."""
    offset = 0 if storage_offset is None else storage_offset - self.storage_offset()
    if offset == 0 and self.is_contiguous() and _is_dense(size, stride, self.numel()):
        return view(aten.view.default, self, size)
    if 0 not in size and any(step == 0 and length > 1 for length, step in zip(size, stride, strict=True)):
        return _expanded(op, self, size, stride, storage_offset)
    cuts = located(list(zip(self.shape, self.stride(), strict=True)), list(zip(size, stride, strict=True)), offset)
    if cuts is not None:
        return _replayed(self, cuts, size)
    if set(self.blocks) <= {WHOLE}:  # one scale, which any view shares
        rank, geometry = len(size), applied(op, size, stride, storage_offset)
        return viewed(self, geometry, lambda scale: scale.reshape((1,) * rank), (WHOLE,) * rank, cuts=True)
    narrowed = _narrowed(self.shape, self.blocks, size) if 0 in size else None
    if narrowed is not None:
        return _replayed(self, narrowed, size)
    return ScaledInt8Tensor.super_rule(op)(self, size, stride, storage_offset)


def _is_dense(size: Sequence[int], stride: Sequence[int], count: int) -> bool:
    """Whether the view shows all ``count`` values in their order."""
    expected = 1
    for length, step in zip(reversed(size), reversed(stride), strict=True):
        if length not in (1, 0) and step != expected:
            return False
        expected *= length
    return expected == count


def _expanded(op: OpOverload, self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: Any) -> Any:
    """A view with stride 0 along some dims: one without them, expanded."""
    once = [1 if step == 0 else length for length, step in zip(size, stride, strict=True)]
    narrow = as_strided(op, self, once, stride, storage_offset)
    return expand(aten.expand.default, narrow, size) if isinstance(narrow, ScaledInt8Tensor) else narrow.expand(size)


class Cut(NamedTuple):
    """What a view takes of one dim: values ``start``, ``start + step``, ... as dim ``target`` of the view; or one value
    only, and no dim (``target`` None)."""

    start: int
    step: int
    target: int | None


def located(own: list[tuple[int, int]], wanted: list[tuple[int, int]], offset: int) -> list[Cut] | None:
    """How to cut dims of (size, stride) ``own`` so that those of ``wanted`` are left, which begin ``offset`` values
    later. None where slices and selections can't do it.

    >>> located([(4, 6), (6, 1)], [(6, 1), (2, 12)], 6)
    [Cut(start=1, step=2, target=1), Cut(start=0, step=1, target=0)]
    """
    if any(size == 0 for size, _ in own + wanted):
        return _reordered(own, wanted) if offset == 0 else None
    if offset < 0:
        return None
    open_targets = [target for target, (size, _) in enumerate(wanted) if size != 1]
    cuts: dict[int, Cut] = {}
    for dim in sorted(range(len(own)), key=lambda d: -own[d][1]):
        size, stride = own[dim]
        if size == 1 or stride == 0:
            cuts[dim] = Cut(0, 1, None)
            continue
        start, offset = divmod(offset, stride)
        fits = [t for t in open_targets if _fits(wanted[t], size - start, stride)]
        target = max(fits, key=lambda t: wanted[t][1], default=None)
        if start >= size:
            return None
        cuts[dim] = Cut(start, 1 if target is None else wanted[target][1] // stride, target)
        open_targets = [t for t in open_targets if t != target]
    return [cuts[dim] for dim in range(len(own))] if not offset and not open_targets else None


def _reordered(own: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> list[Cut] | None:
    """Empty dims say nothing of places: they are only told apart by size and stride."""
    cuts: list[Cut] = []
    for pair in own:
        fits = [t for t, other in enumerate(wanted) if other == pair and all(t != cut.target for cut in cuts)]
        if not fits:
            return None
        cuts.append(Cut(0, 1, fits[0]))
    return cuts if len(own) == len(wanted) else None


def _narrowed(own: Sequence[int], blocks: Sequence[int], size: Sequence[int]) -> list[Cut] | None:
    """Of an empty view only the size shows: the first values, or blocks, of each dim are as right as those it is at."""
    if len(own) != len(size):
        return None
    fit = all(n <= room and (b == WHOLE or n % b == 0) for n, room, b in zip(size, own, blocks, strict=True))
    return [Cut(0, 1, dim) for dim in range(len(own))] if fit else None


def _fits(wanted: tuple[int, int], room: int, stride: int) -> bool:
    return wanted[1] > 0 and wanted[1] % stride == 0 and (wanted[0] - 1) * (wanted[1] // stride) < room


def _replayed(self: Any, cuts: list[Cut], size: Sequence[int]) -> Any:
    kept: list[int] = []
    view: Any = alias(self)
    for dim in reversed(range(len(cuts))):
        start, step, target = cuts[dim]
        if target is None:
            view = select(aten.select.int, view, dim, start)
        else:
            end = start + (size[target] - 1) * step + 1
            view = slice_(aten.slice.Tensor, view, dim, start, end, step)
            kept.insert(0, target)
    view = permute(aten.permute.default, view, [kept.index(target) for target in sorted(kept)])
    for target, length in enumerate(size):
        if length == 1 and target not in kept:
            view = unsqueeze(aten.unsqueeze.default, view, target)
    return view
