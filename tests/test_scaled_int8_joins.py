"""Copies of the payload: clones, conversions, ``cat``, ``stack``, picked rows and columns. They own their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import DTYPES, JOINS, VIEWS, check_inner, take_steps, values_of, weights

import lamina
from lamina import GridError, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor

GRANULARITIES = [PerTensor(), PerRow(), PerGroup(2), PerBlock((-1, 1)), PerBlock((2, 2))]


def made(granularity: Any = PerRow(), shape: tuple[int, ...] = (4, 6), **recipe: Any) -> ScaledInt8Tensor:  # noqa: B008
    return ScaledInt8Tensor.quantize(torch.randn(shape), granularity, **recipe)


@given(st.data())
def test_any_chain_gives_what_it_gives_of_the_values(data: st.DataObject) -> None:
    """Views and copies in any order, bit for bit: ``chain(w).dequantize() == chain(w.dequantize())``."""
    w = data.draw(weights())
    take_steps(data.draw, w, w.dequantize(), VIEWS + JOINS)


# clone and to


@pytest.mark.parametrize("memory_format", [torch.preserve_format, torch.contiguous_format])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_clone_owns_a_copy_of_the_payload(turned: bool, symmetric: bool, memory_format: torch.memory_format) -> None:
    w = made(symmetric=symmetric)
    w = w.t() if turned else w
    copied, plain = w.clone(memory_format=memory_format), w.dequantize()
    assert type(copied) is ScaledInt8Tensor
    assert copied.stride() == plain.as_strided(w.shape, w.stride()).clone(memory_format=memory_format).stride()
    assert torch.equal(copied.qdata, w.qdata)
    assert torch.equal(copied.scale, w.scale)
    copied.fill_(9.0)
    assert torch.equal(w.dequantize(), plain)


def test_contiguous_keeps_the_payload() -> None:
    turned = made().t()
    flat = turned.contiguous()
    assert type(flat) is ScaledInt8Tensor
    assert flat.is_contiguous()
    assert torch.equal(flat.dequantize(), turned.dequantize())


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_a_floating_dtype_is_a_label(source: torch.dtype, target: torch.dtype) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5).to(source))
    with lamina.strict():
        converted = w.to(target)
    assert (type(converted), converted.dtype, converted.logical_dtype) == (ScaledInt8Tensor, target, target)
    assert torch.equal(converted.qdata, w.qdata)
    assert torch.equal(converted.scale, w.scale)
    assert (converted is w) == (source is target)
    exact = w.qdata.double() * w.scale.double()  # in float32 one rounding of the product more
    error = (converted.dequantize().double() - exact).abs()
    assert bool((error <= exact.abs() * (torch.finfo(target).eps / 2 + 2**-24)).all())


def test_the_named_conversions() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    kept = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64, "float": torch.float32}
    for name, dtype in kept.items():
        converted = getattr(w, name)()
        assert (type(converted), converted.dtype) == (ScaledInt8Tensor, dtype)
    for name, dtype in {"int": torch.int32, "bool": torch.bool, "char": torch.int8, "cfloat": torch.complex64}.items():
        converted = getattr(w, name)()
        assert (type(converted), converted.dtype) == (torch.Tensor, dtype)
        assert torch.equal(converted, getattr(w.dequantize(), name)())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_gradient_of_a_conversion_has_the_dtype_of_the_leaf(dtype: torch.dtype) -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    p.to(dtype).sum().backward()
    assert p.grad is not None
    assert (type(p.grad), p.grad.dtype) == (torch.Tensor, torch.float32)
    assert torch.equal(p.grad, torch.ones(3, 5))


def test_a_copying_conversion_owns_its_memory() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5), symmetric=False)
    plain = w.dequantize()
    for converted in (w.to(torch.float32, copy=True), w.half(), w.to("cpu", copy=True)):
        converted.fill_(-9.0)
    assert torch.equal(w.dequantize(), plain)


def test_moving_takes_all_inner_tensors() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5), symmetric=False)
    moved = w.to("meta", torch.bfloat16)
    assert type(moved) is ScaledInt8Tensor
    assert moved.zero_point is not None
    assert [t.device.type for t in (moved, moved.qdata, moved.scale, moved.zero_point)] == ["meta"] * 4
    assert (moved.dtype, moved.qdata.dtype, moved.scale.dtype) == (torch.bfloat16, torch.int8, torch.float32)


# new_zeros


@pytest.mark.parametrize("size", [(2, 6), (4, 2), (0, 6)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_zeros_of_a_size_that_fits_are_int8(size: tuple[int, int], symmetric: bool) -> None:
    zeros = made(PerGroup(2), symmetric=symmetric, rounding="stochastic").new_zeros(size)
    assert type(zeros) is ScaledInt8Tensor
    assert (zeros.granularity, zeros.rounding, zeros.zero_point is None) == (PerGroup(2), "stochastic", symmetric)
    assert torch.equal(zeros.dequantize(), torch.zeros(size))


@pytest.mark.parametrize("size", [(2, 5), (6,), (2, 2, 2), ()])
def test_zeros_of_another_size_are_plain(size: tuple[int, ...]) -> None:
    zeros = made(PerGroup(2)).new_zeros(size)
    assert type(zeros) is torch.Tensor
    assert torch.equal(zeros, torch.zeros(size))


# cat and stack


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_parts_of_one_recipe_join_as_int8(granularity: Any, dim: int, symmetric: bool) -> None:
    parts = [made(granularity, symmetric=symmetric) for _ in range(3)]
    with lamina.strict():
        joined = torch.cat(parts, dim)
    assert type(joined) is ScaledInt8Tensor
    assert torch.equal(joined.dequantize(), torch.cat([p.dequantize() for p in parts], dim))
    check_inner(joined)
    joined.zero_()
    assert parts[0].dequantize().abs().max() > 0


def test_rows_side_by_side_are_groups() -> None:
    assert torch.cat([made(), made()], 1).blocks == (1, 6)
    assert torch.cat([made(PerTensor()), made(PerTensor())]).blocks == (4, -1)
    assert torch.cat([made()], 1).granularity == PerRow()
    assert torch.cat([made(), made()]).granularity == PerRow()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_stacked_parts_keep_their_scales(granularity: Any, dim: int, symmetric: bool) -> None:
    parts = [made(granularity, symmetric=symmetric) for _ in range(3)]
    with lamina.strict():
        joined = torch.stack(parts, dim)
    assert type(joined) is ScaledInt8Tensor
    assert torch.equal(joined.dequantize(), torch.stack([p.dequantize() for p in parts], dim))
    check_inner(joined)


def test_tensors_without_dims_stack() -> None:
    parts = [ScaledInt8Tensor.quantize(torch.tensor(float(v))) for v in (1, 2)]
    assert torch.equal(values_of(torch.stack(parts)), torch.stack([p.dequantize() for p in parts]))


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(4, 6),
        made().half(),
        made(symmetric=False),
        made(PerGroup(2)),
        made().t().contiguous().t(),
        made(shape=(4, 6)).view(2, 12),
    ],
    ids=["plain", "dtype", "zero point", "groups", "strides", "shape"],
)
@pytest.mark.parametrize("first", [True, False])
def test_parts_of_several_recipes_join_as_values(other: torch.Tensor, first: bool) -> None:
    parts = [made(), other] if first else [other, made()]
    if other.shape != (4, 6):
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            torch.cat(parts)
        return
    for join, dim in ((torch.cat, 0), (torch.cat, 1), (torch.stack, 0)):
        assert torch.equal(values_of(join(parts, dim)), join([values_of(p) for p in parts], dim))


def test_what_cat_refuses_is_refused_alike() -> None:
    plain, w = torch.randn(4, 6), made()
    for parts in ([plain, plain], [w, w]):
        with pytest.raises(IndexError, match="Dimension out of range"):
            torch.cat(parts, 2)
        with pytest.raises(IndexError, match="Dimension out of range"):
            torch.stack(parts, 3)
    for parts in ([plain, plain[:, :2]], [w, w[:, :2]]):
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            torch.cat(parts)
        with pytest.raises(RuntimeError, match="equal size"):
            torch.stack(parts)


def test_an_empty_part_joins() -> None:
    """Plain ``cat`` takes a tensor of shape (0,) beside any other."""
    w = made()
    for empty in (torch.empty(0), ScaledInt8Tensor.quantize(torch.empty(0)), w[:0]):
        assert torch.equal(values_of(torch.cat([w, empty])), w.dequantize())
        assert torch.equal(values_of(torch.cat([empty, w])), w.dequantize())


def test_partial_views_join_as_int8() -> None:
    w = made()
    joined = torch.cat([w[:, :3], w[:, 3:]], 1)
    assert type(joined) is ScaledInt8Tensor
    assert not joined.partial
    assert torch.equal(joined.dequantize(), w.dequantize())
    joined[0] = 5.0
    assert torch.equal(joined.dequantize()[1:], w.dequantize()[1:])


# index_select and index

PICKS: dict[str, Any] = {
    "index_select rows": lambda w: w.index_select(0, torch.tensor([3, 0, 3])),
    "index_select columns": lambda w: w.index_select(-1, torch.tensor([5, 0, 2, 2])),
    "index_select of int32": lambda w: w.index_select(1, torch.tensor([1], dtype=torch.int32)),
    "index_select of none": lambda w: w.index_select(0, torch.tensor([], dtype=torch.int64)),
    "rows": lambda w: w[torch.tensor([3, -1, 0])],
    "rows by a list": lambda w: w[[0, 1]],
    "columns": lambda w: w[:, torch.tensor([-6, 5, 1])],
    "a table of rows": lambda w: w[torch.tensor([[0, 1, 2], [3, -3, 1]])],
    "a table of columns": lambda w: w[:, torch.tensor([[0, 1], [-1, 4]])],
    "int32": lambda w: w[torch.tensor([0, 2], dtype=torch.int32)],
}
DECODED: dict[str, Any] = {
    "pairs": lambda w: w[torch.tensor([0, 1]), torch.tensor([2, 3])],
    "mask of all": lambda w: w[torch.ones(4, 6, dtype=torch.bool)],
    "take_along_dim": lambda w: w.take_along_dim(torch.tensor([[0], [1], [2], [3]]), 1),
    "gather": lambda w: w.gather(1, torch.tensor([[0, 5]])),
}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("name", PICKS)
def test_picked_rows_and_columns_are_int8(name: str, granularity: Any, symmetric: bool) -> None:
    w = made(granularity, symmetric=symmetric)
    before = w.dequantize()
    with lamina.strict():
        picked = PICKS[name](w)
    assert type(picked) is ScaledInt8Tensor
    assert torch.equal(picked.dequantize(), PICKS[name](before))
    assert picked.stride() == PICKS[name](before).stride()
    assert not picked.partial
    check_inner(picked)
    picked.fill_(3.0)
    assert torch.equal(w.dequantize(), before)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dim", [0, 1])
def test_a_mask_picks_int8_where_values_share_no_group(granularity: Any, dim: int) -> None:
    w = made(granularity)
    mask = torch.tensor([True, False, True, True, False, False][: w.shape[dim]])
    where = (slice(None), mask) if dim else (mask,)
    picked = w[where]
    assert torch.equal(values_of(picked), w.dequantize()[where])
    assert (type(picked) is ScaledInt8Tensor) == (w.blocks[dim] in (1, -1))


@pytest.mark.parametrize("name", DECODED)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_other_picks_are_plain(name: str, granularity: Any) -> None:
    w = made(granularity)
    picked = DECODED[name](w)
    assert type(picked) is torch.Tensor
    assert torch.equal(picked, DECODED[name](w.dequantize()))


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: x[torch.tensor([4])],
        lambda x: x[:, torch.tensor([-7])],
        lambda x: x.index_select(0, torch.tensor([4])),
        lambda x: x.index_select(2, torch.tensor([0])),
        lambda x: x[torch.ones(3, dtype=torch.bool)],
    ],
)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_place_out_of_range(pick: Any, granularity: Any) -> None:
    for x in (torch.randn(4, 6), made(granularity)):
        with pytest.raises((IndexError, RuntimeError)):
            pick(x)


def test_an_index_without_dims() -> None:
    w = ScaledInt8Tensor.quantize(torch.tensor(2.0))
    picked = w.index_select(0, torch.tensor([0]))
    assert torch.equal(values_of(picked), w.dequantize().index_select(0, torch.tensor([0])))


def test_int8_indices_are_refused_as_by_plain_tensors() -> None:
    """A quantized tensor is no index."""
    for index in (torch.tensor([1.0]), ScaledInt8Tensor.quantize(torch.tensor([1.0]))):
        with pytest.raises((IndexError, RuntimeError)):
            torch.randn(4)[index]


@pytest.mark.parametrize("granularity", [*GRANULARITIES, PerGroup(3)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
def test_an_embedding_decodes_its_rows_alone(granularity: Any, shape: tuple[int, ...]) -> None:
    w = made(granularity, symmetric=False)
    rows = torch.randint(0, 4, shape)
    with lamina.strict():
        found = torch.nn.functional.embedding(rows, w)
    assert type(found) is torch.Tensor
    assert torch.equal(found, torch.nn.functional.embedding(rows, w.dequantize()))


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_the_gradient_goes_through_a_join(join: Any) -> None:
    leaves = [torch.nn.Parameter(made()) for _ in range(2)]
    factor = torch.randn(join([leaf.detach().dequantize() for leaf in leaves]).shape)
    (join(leaves) * factor).sum().backward()
    wanted = factor.unbind() if join is torch.stack else factor.split(4)
    for leaf, gradient in zip(leaves, wanted, strict=True):
        assert type(leaf.grad) is torch.Tensor
        assert torch.equal(leaf.grad, gradient)


def test_a_cut_of_joined_groups() -> None:
    """Rows that were laid side by side are no groups that somebody chose."""
    joined = torch.cat([made(), made()], 1)
    assert torch.equal(values_of(joined[:, 1:3]), joined.dequantize()[:, 1:3])
    with pytest.raises(GridError, match="multiples of 2"):
        torch.cat([made(PerGroup(2)), made(PerGroup(2))], 1)[:, 1:3]
