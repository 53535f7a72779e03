"""``view`` and ``as_strided``: int8 where rows or groups stay whole, else a view of the decoded values."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import block_numbers, check_inner, divisors, draw_step, flatten, outcome, values_of, view, weights

import lamina
from lamina import Granularity, GridError, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor


def blocks_for(numbers: torch.Tensor) -> tuple[int, ...] | None:
    """By trying all: blocks whose grid is the one that ``numbers`` tell of."""
    for blocks in itertools.product(*([-1, *divisors(size)] for size in numbers.shape)):
        own = block_numbers(tuple(numbers.shape), blocks)
        pairs = set(zip(numbers.flatten().tolist(), own.flatten().tolist(), strict=True))
        if len({a for a, _ in pairs}) == len(pairs) == len({b for _, b in pairs}):
            return blocks
    return None


@given(st.data())
def test_a_view_stays_int8_exactly_where_blocks_stay_blocks(data: st.DataObject) -> None:
    w = data.draw(weights(max_rank=3))
    step = draw_step(data.draw, tuple(w.shape), [view, flatten])
    shown, wanted = step.call(w), step.call(w.dequantize())
    assert torch.equal(values_of(shown), wanted)
    assert (shown.shape, shown.stride()) == (wanted.shape, wanted.stride())
    if w.numel():
        numbers = block_numbers(tuple(w.shape), w.blocks).view(wanted.shape)
        assert (type(shown) is ScaledInt8Tensor) == (blocks_for(numbers) is not None)
    if type(shown) is ScaledInt8Tensor:
        check_inner(shown)
        assert shown.scale.data_ptr() == w.scale.data_ptr()


@pytest.mark.parametrize(
    ("granularity", "size", "wanted"),
    [
        (PerRow(), (2, 2, 6), PerRow()),
        (PerRow(), (4, 2, 3), PerBlock((1, -1, -1))),
        (PerRow(), (4, 6, 1), PerBlock((1, -1, 1))),
        (PerRow(), (1, 4, 6), PerRow()),
        (PerRow(), (8, 3), PerBlock((2, -1))),
        (PerTensor(), (24,), PerTensor()),
        (PerTensor(), (2, 3, 4), PerTensor()),
        (PerGroup(3), (8, 3), PerRow()),
        (PerGroup(3), (4, 2, 3), PerRow()),
        (PerGroup(3), (24,), PerGroup(3)),
        (PerGroup(3), (2, 12), PerGroup(3)),
        (PerGroup(2), (4, 3, 2), PerRow()),
        (PerGroup(1), (3, 8), PerGroup(1)),
        (PerBlock((2, -1)), (2, 12), PerRow()),
    ],
)
def test_the_granularity_of_a_view(granularity: Any, size: tuple[int, ...], wanted: Any) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), granularity, symmetric=False)
    with lamina.strict():
        shown = w.view(size)
    assert type(shown) is ScaledInt8Tensor
    assert shown.blocks == wanted.blocks(len(size))
    assert torch.equal(shown.dequantize(), w.dequantize().view(size))
    check_inner(shown)


@pytest.mark.parametrize(("granularity", "size"), [(PerRow(), (6, 4)), (PerRow(), (2, 3, 4)), (PerGroup(3), (6, 4))])
def test_a_view_through_blocks_decodes(granularity: Any, size: tuple[int, ...]) -> None:
    """And a write to it reaches the tensor."""
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), granularity)
    shown, wanted = w.view(size), w.dequantize().view(size)
    assert type(shown) is not ScaledInt8Tensor
    assert torch.equal(values_of(shown), wanted)
    shown[0] = 2.0
    wanted[0] = 2.0
    assert torch.equal(w.dequantize(), w.requantize(wanted.view(4, 6)).dequantize())


def test_rows_in_line_can_be_cut_anywhere() -> None:
    """Nobody chose those groups; ones that somebody did are cut on their borders only."""
    row, group = (ScaledInt8Tensor.quantize(torch.randn(4, 6), g) for g in (PerRow(), PerGroup(6)))
    with lamina.strict():
        assert type(row.view(-1)[6:18]) is ScaledInt8Tensor
    assert torch.equal(values_of(row.view(-1)[5:7]), row.dequantize().view(-1)[5:7])
    with pytest.raises(GridError, match="multiples of 6"):
        group.view(-1)[5:7]


def test_a_flat_row_becomes_one_again() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6))
    again = w.view(-1).view(4, 6)
    assert type(again) is ScaledInt8Tensor
    assert again.granularity == PerRow()
    assert torch.equal(again.dequantize(), w.dequantize())
    assert again.scale.data_ptr() == w.scale.data_ptr()


@pytest.mark.parametrize("size", [(5, 5), (-1, 5), (4, -2)])
def test_a_size_that_does_not_fit(size: tuple[int, ...]) -> None:
    for x in (torch.randn(4, 6), ScaledInt8Tensor.quantize(torch.randn(4, 6))):
        with pytest.raises(RuntimeError, match="invalid"):
            x.view(size)


def test_a_view_of_strides_that_do_not_fit() -> None:
    for x in (torch.randn(4, 6), ScaledInt8Tensor.quantize(torch.randn(4, 6))):
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            x.t().view(-1)


def test_reshape_copies_where_a_view_can_not_be() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6))
    flat = w.t().reshape(-1)
    assert torch.equal(values_of(flat), w.dequantize().t().reshape(-1))
    flat.zero_()
    assert w.dequantize().abs().max() > 0


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
@pytest.mark.parametrize("granularity", [PerTensor(), PerRow(), PerGroup(1)])
def test_a_view_of_nothing(shape: tuple[int, ...], granularity: Any) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(shape), granularity)
    same = w.view(shape)
    assert type(same) is ScaledInt8Tensor
    assert same.stride() == w.dequantize().view(shape).stride()
    assert values_of(w.view(-1)).shape == (0,)
    check_inner(same)


# as_strided


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5, 1), (1, 1), (0, 3), (4, 4), (2, 3, 4)])
def test_as_strided_is_lazy_where_it_reorders(shape: tuple[int, ...]) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(shape))
    for wanted in (w.dequantize(), w.dequantize().transpose(0, -1)):
        shown = w.as_strided(wanted.size(), wanted.stride())
        assert type(shown) is ScaledInt8Tensor
        assert (shown.qdata.data_ptr(), shown.scale.data_ptr()) == (w.qdata.data_ptr(), w.scale.data_ptr())
        assert torch.equal(shown.dequantize(), wanted)


@given(st.data())
def test_as_strided_of_a_chain_of_cuts(data: st.DataObject) -> None:
    """Compiled code asks for its views so: the geometry says which cuts they are."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    w = ScaledInt8Tensor.quantize(torch.randn(shape), data.draw(st.sampled_from([PerRow(), PerTensor(), PerGroup(1)])))
    plain = w.dequantize()
    cut = tuple(data.draw(st.one_of(st.integers(0, n - 1), st.slices(n).filter(rising))) for n in shape)
    wanted = plain[cut]
    wanted = wanted.permute(data.draw(st.permutations(range(wanted.dim()))))
    shown = w.as_strided(wanted.size(), wanted.stride(), wanted.storage_offset())
    assert torch.equal(values_of(shown), wanted)
    if wanted.numel():
        assert type(shown) is ScaledInt8Tensor
        assert shown.stride() == wanted.stride() or 1 in wanted.shape
        check_inner(shown)


def rising(cut: slice) -> bool:
    return cut.step is None or cut.step > 0


@given(st.data())
def test_as_strided_of_any_geometry(data: st.DataObject) -> None:
    """Overlapping windows too: what is no chain of cuts decodes."""
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), data.draw(st.sampled_from([PerRow(), PerTensor(), PerGroup(3)])))
    size = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    stride = tuple(data.draw(st.integers(0, 7)) for _ in size)
    reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if math.prod(size) else 0
    offset = data.draw(st.integers(0, max(0, 23 - reach)))
    plain = w.dequantize()
    shown = outcome(lambda x: x.as_strided(size, stride, offset), w)
    wanted = outcome(lambda x: x.as_strided(size, stride, offset), plain)
    if isinstance(wanted, Exception) or isinstance(shown, GridError):
        assert isinstance(shown, Exception)
        return
    assert torch.equal(values_of(shown), wanted)


def test_as_strided_of_nothing_at_all() -> None:
    """Its strides may lead anywhere."""
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6))
    assert values_of(w.as_strided((0, 2, 4), (0, 0, 6), 6)).shape == (0, 2, 4)


@pytest.mark.parametrize("granularity", [PerRow(), PerTensor(), PerBlock((2, -1)), PerGroup(4)], ids=str)
@pytest.mark.parametrize(("size", "offset"), [((4, 0), None), ((8, 0), 24), ((0, 0), 16)])
def test_as_strided_of_an_empty_view(size: tuple[int, int], offset: int | None, granularity: Granularity) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(10, 8), granularity)[:, 8:]
    shown = w.as_strided(size, (8, 1), offset)
    assert type(shown) is ScaledInt8Tensor
    assert (shown.shape, shown.granularity) == (size, w.granularity)
    check_inner(shown)


def test_compiled_empty_views_stay_int8() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 8))
    compiled = torch.compile(lambda w: w[:, 8:][1:], backend="aot_eager")
    assert type(compiled(w)) is ScaledInt8Tensor


def test_as_strided_looks_at_the_offset() -> None:
    payload = torch.arange(-15, 15).to(torch.int8).view(6, 5)
    w = ScaledInt8Tensor(payload[3:], torch.ones(3, 1))
    for offset in (None, 15):
        shown = w.as_strided((3, 5), (5, 1), offset)
        assert shown.qdata.data_ptr() == w.qdata.data_ptr()
    with suppress(RuntimeError):  # other memory than that of this tensor: an error, or at least not this tensor
        assert type(w.as_strided((3, 5), (5, 1), 0)) is not ScaledInt8Tensor


@pytest.mark.parametrize(("size", "stride", "offset"), [((2, 5), (5, 1), 5), ((15,), (1,), 0), ((2, 2), (7, 2), 1)])
def test_as_strided_of_another_geometry(size: Any, stride: Any, offset: int) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    shown = w.as_strided(size, stride, offset)
    assert torch.equal(values_of(shown), w.dequantize().as_strided(size, stride, offset))
    w.t().as_strided(size, stride, offset).zero_()
    assert torch.equal(values_of(w.as_strided(size, stride, offset)), torch.zeros(size))
