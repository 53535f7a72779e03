"""Which values share a scale: the grid of each granularity, and what it says where it can't be."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import block_numbers, check_inner, divisors, granularities

from lamina import Granularity, GridError, PerBlock, PerGroup, PerRow, PerTensor, QuantizationError, ScaledInt8Tensor

EVERY: list[Granularity] = [PerTensor(), PerRow(), PerGroup(2), PerBlock((1, -1)), PerBlock((3, 2))]


@pytest.mark.parametrize(
    ("granularity", "shape", "wanted"),
    [
        (PerTensor(), (), ()),
        (PerTensor(), (4, 6), (1, 1)),
        (PerTensor(), (0, 6), (1, 1)),
        (PerRow(), (), ()),
        (PerRow(), (5,), (1,)),
        (PerRow(), (2, 3, 4), (2, 3, 1)),
        (PerRow(), (0, 4), (0, 1)),
        (PerRow(), (4, 0), (4, 1)),
        (PerGroup(2), (6,), (3,)),
        (PerGroup(6), (4, 6), (4, 1)),
        (PerGroup(1), (4, 6), (4, 6)),
        (PerGroup(3), (2, 0), (2, 0)),
        (PerBlock((2, 3)), (4, 6), (2, 2)),
        (PerBlock((-1, 1, 2)), (3, 4, 6), (1, 4, 3)),
        (PerBlock(()), (), ()),
    ],
)
def test_the_shape_of_the_scale(granularity: Granularity, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    assert granularity.scale_shape(shape) == wanted
    w = ScaledInt8Tensor.quantize(torch.randn(shape), granularity, symmetric=False)
    assert w.zero_point is not None
    assert (tuple(w.scale.shape), tuple(w.zero_point.shape)) == (wanted, wanted)
    assert w.blocks == granularity.blocks(len(shape))
    check_inner(w)


@given(st.data())
def test_each_block_has_the_scale_of_its_own_values(data: st.DataObject) -> None:
    """Block by block, from the values that are in it alone."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)))
    granularity = data.draw(granularities(shape))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    values = torch.randn(shape)
    numbers = block_numbers(shape, granularity.blocks(len(shape)))
    w = ScaledInt8Tensor.quantize(values, granularity)
    assert w.scale.numel() == numbers.unique().numel()
    for number, scale in zip(numbers.unique(), w.scale.flatten(), strict=True):  # both in the order of their places
        own = values[numbers == number]
        assert scale == own.abs().amax() / 127
        assert torch.equal(w.dequantize()[numbers == number], (own / scale).round() * scale)


@pytest.mark.parametrize("size", [4, 5, 8])
def test_a_group_size_that_does_not_divide(size: int) -> None:
    for make in (
        lambda: ScaledInt8Tensor.quantize(torch.randn(2, 6), PerGroup(size)),
        lambda: ScaledInt8Tensor.from_plain(torch.randn(2, 6), granularity=PerGroup(size)),
        lambda: ScaledInt8Tensor.quantize(torch.randn(6, 2), PerBlock((size, 1))),
        lambda: ScaledInt8Tensor(torch.zeros(2, 6, dtype=torch.int8), torch.ones(2, 1), None, PerGroup(size)),
    ):
        with pytest.raises(GridError, match=rf"groups of {size} don't divide dim [01] .* divides 6, or pad the dim to"):
            make()


@pytest.mark.parametrize("size", [0, -1, -2, 2.0, True, "2", None, torch.tensor(2)])
def test_a_group_size_that_is_none(size: Any) -> None:
    with pytest.raises(QuantizationError, match=r"PerGroup: size holds .* positive int"):
        PerGroup(size)


@pytest.mark.parametrize("shape", [(0, 1), (1, -2), (1.0, 2), (None,), "12"])
def test_a_block_that_is_none(shape: Any) -> None:
    with pytest.raises(QuantizationError, match="PerBlock: shape"):
        PerBlock(shape)


@pytest.mark.parametrize("shape", [3, None])
def test_a_shape_of_blocks_that_is_no_sequence(shape: Any) -> None:
    with pytest.raises(QuantizationError, match=rf"PerBlock: shape is {shape}"):
        PerBlock(shape)


def test_blocks_of_another_rank() -> None:
    with pytest.raises(QuantizationError, match="has 3 dims, and the tensor 2"):
        ScaledInt8Tensor.quantize(torch.randn(4, 6), PerBlock((1, 1, -1)))
    with pytest.raises(QuantizationError, match="groups the last dim, and the tensor has none"):
        ScaledInt8Tensor.quantize(torch.tensor(1.0), PerGroup(1))


def test_granularities_are_compared_by_value() -> None:
    again: list[Granularity] = [PerTensor(), PerRow(), PerGroup(2), PerBlock([1, -1]), PerBlock([3, 2])]  # type: ignore[arg-type]
    assert again == EVERY
    assert len({*EVERY, *again}) == len(EVERY)
    assert PerGroup(2) != PerGroup(3)


@pytest.mark.parametrize("granularity", EVERY)
def test_granularities_are_saved(granularity: Granularity) -> None:
    assert pickle.loads(pickle.dumps(granularity)) == granularity
    w = ScaledInt8Tensor.quantize(torch.randn(6, 4), granularity, symmetric=False)
    file = io.BytesIO()
    torch.save(w, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded.granularity == granularity
    assert torch.equal(loaded.dequantize(), w.dequantize())


@pytest.mark.parametrize("name", ["size", "shape"])
def test_granularities_do_not_change(name: str) -> None:
    granularity = PerGroup(2) if name == "size" else PerBlock((1, 2))
    with pytest.raises(AttributeError):
        setattr(granularity, name, 3)


def test_the_granularity_that_follows_is_the_simplest() -> None:
    """What a view is equal to, and what guards its compilation, does not depend on the way that led there."""
    row, group = ScaledInt8Tensor.quantize(torch.randn(4, 6)), ScaledInt8Tensor.quantize(torch.randn(4, 6), PerGroup(3))
    assert row.t().granularity == PerBlock((-1, 1))
    assert row.t().t().granularity == PerRow()
    assert row.view(2, 2, 6).granularity == PerRow()
    assert group.view(8, 3).granularity == PerRow()
    assert group.view(2, 2, 6).granularity == PerGroup(3)
    assert group.t().t().granularity == PerGroup(3)
    assert group.t().granularity == PerBlock((3, 1))
    whole = ScaledInt8Tensor.quantize(torch.randn(4, 6), PerTensor())
    for view in (whole.t(), whole.view(-1), whole.unsqueeze(1), whole.view(3, 8).unsqueeze(0).expand(2, 3, 8)):
        assert view.granularity == PerTensor()


@given(st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_the_whole_dim_as_a_group_is_a_row(size: int) -> None:
    values = torch.randn(3, size)
    row, group = ScaledInt8Tensor.quantize(values), ScaledInt8Tensor.quantize(values, PerGroup(size))
    assert torch.equal(row.dequantize(), group.dequantize())
    assert all(PerGroup(d).scale_shape((3, size)) == (3, size // d) for d in divisors(size))
