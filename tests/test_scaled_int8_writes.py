"""Writes reach the payload that is there: in place, through any view, by copies of all four mixes."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import DTYPES, VIEWS, block_numbers, check_inner, granularities, outcome, take_steps, weights

import lamina
from lamina import GridError, PartialViewError, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor, UnwrittenError

View = Callable[[Any], Any]
SHARED = "more than one element of the written-to tensor refers to a single memory location"


def made(*args: Any, shape: tuple[int, ...] = (4, 6), **recipe: Any) -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(torch.randn(shape), *args, **recipe)


def addresses(w: ScaledInt8Tensor) -> list[int]:
    return [t.data_ptr() for t in (w.qdata, w.scale, w.zero_point) if t is not None]


def put_first(x: Any) -> Any:
    x[0 if x.dim() and len(x) else ...] = 7.0
    return x


def add_to(x: Any) -> Any:
    x += 1
    return x


def foreach(x: Any) -> Any:
    torch._foreach_add_([x], 2.0)
    return x


WRITES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "copy_": lambda x, values: x.copy_(values),
    "copy_ of float32": lambda x, values: x.copy_(values.float()),
    "fill_": lambda x, _values: x.fill_(3.5),
    "zero_": lambda x, _values: x.zero_(),
    "mul_": lambda x, values: x.mul_(values),
    "add_": lambda x, values: x.add_(values, alpha=2),
    "addcmul_": lambda x, values: x.addcmul_(values, values, value=0.5),
    "lerp_": lambda x, values: x.lerp_(values, 0.5),
    "neg_": lambda x, _values: x.neg_(),
    "clamp_": lambda x, _values: x.clamp_(-0.5, 0.5),
    "masked_fill_": lambda x, values: x.masked_fill_(values > 0, -2.0),
    "masked_scatter_": lambda x, values: x.masked_scatter_(values > 0, values + 1),
    "setitem": lambda x, _values: put_first(x),
    "+=": lambda x, _values: add_to(x),
    "out=": lambda x, values: torch.mul(values, 2, out=x),
    "_foreach_add_": lambda x, _values: foreach(x),
}


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors is deprecated")
@given(st.data())
def test_a_write_through_a_chain_of_views_is_one_to_the_tensor(data: st.DataObject) -> None:
    """The tensor becomes what it would be, had its values been written through the same views and been quantized again
    with its recipe. Blocks that the write leaves alone stay, or are quantized again. No address changes."""
    w = data.draw(weights())
    was, reference = state(w), w.dequantize()
    view, wanted, said = take_steps(data.draw, w, reference, VIEWS, most=4)
    name = data.draw(st.sampled_from(list(WRITES)))
    values = torch.randn(wanted.shape).to(w.dtype) * 4
    places = addresses(w)
    result, refused = (
        outcome(lambda x: WRITES[name](x, values), view),
        outcome(lambda x: WRITES[name](x, values), wanted),
    )
    assert addresses(w) == places, said
    if isinstance(result, Exception):
        assert SHARED in str(result), said  # plain tensors take some such writes: zero_ of an expanded one
        assert 0 in wanted.stride(), said
        assert torch.equal(w.dequantize(), was.values), said
        return
    assert not isinstance(refused, Exception), said
    assert result is view
    assert_is(w, was, reference, wanted, f"{said}, {name}")
    assert torch.equal(view.to_plain(), replayed(w, wanted)), said


def replayed(w: ScaledInt8Tensor, like: torch.Tensor) -> torch.Tensor:
    """What a view of the geometry of ``like`` shows of ``w``."""
    return w.dequantize().as_strided(like.shape, like.stride(), like.storage_offset())


class Before(NamedTuple):
    """The values of a tensor before a write, in its dtype and as they are kept: exactly."""

    values: torch.Tensor
    exact: torch.Tensor


def exactly(w: ScaledInt8Tensor) -> ScaledInt8Tensor:
    return w if w.dtype is torch.float64 else w.float()


def state(w: ScaledInt8Tensor) -> Before:
    return Before(w.dequantize(), exactly(w).dequantize())


def assert_is(w: ScaledInt8Tensor, was: Before, reference: torch.Tensor, view: torch.Tensor, said: str = "") -> None:
    """``w`` stands for ``reference``, of which ``view`` was written; a part of blocks leaves the others exactly where
    they were. Blocks in which nothing changed may not have been quantized again."""
    numbers = block_numbers(tuple(w.shape), w.blocks)
    changed = torch.isin(numbers, numbers[reference != was.values])
    shown = torch.zeros(w.shape, dtype=torch.bool)
    shown.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    mixed = torch.where(shown, reference.to(was.exact.dtype), was.exact)
    after, wanted = w.dequantize(), w.requantize(reference).dequantize()
    apart = exactly(w).requantize(mixed).to(w.dtype).dequantize()
    right = bool(((after == wanted) | ((after == was.values) & ~changed)).all())
    assert right or bool(((after == apart) | ((after == was.values) & ~changed)).all()), said
    check_inner(w)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("granularity", [PerTensor(), PerRow(), PerGroup(2), PerBlock((2, 2))])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_in_place(name: str, granularity: Any, symmetric: bool) -> None:
    w = made(granularity, symmetric=symmetric)
    was, reference, values, places = state(w), w.dequantize(), torch.randn(4, 6), addresses(w)
    assert WRITES[name](w, values) is w
    WRITES[name](reference, values)
    assert_is(w, was, reference, reference)
    assert not torch.equal(w.dequantize(), was.values)
    assert addresses(w) == places
    assert (w.zero_point is None) == symmetric


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("cut", [lambda w: w[:, 2:5], lambda w: w[:, 1], lambda w: w[::2, ::2].t(), lambda w: w[1, 3]])
def test_a_write_to_a_part_moves_the_rest_by_a_rounding_at_most(cut: View, name: str) -> None:
    w = made(symmetric=False)
    was, reference = state(w), w.dequantize()
    view, wanted = cut(w), cut(reference)
    assert view.partial
    values = torch.randn(wanted.shape)
    WRITES[name](view, values)
    WRITES[name](wanted, values)
    assert_is(w, was, reference, wanted)
    assert bool(((w.dequantize() - reference).abs() <= w.scale * (1 / 2 + 2**-15)).all())
    assert torch.equal(view.to_plain(), cut(w.dequantize()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_write_to_a_part_leaves_the_rest_where_it_is(dtype: torch.dtype) -> None:
    """Also where rounding is random: what is on the grid stays on it."""
    w = ScaledInt8Tensor.quantize(
        torch.tensor([[127.0, 3, -100, 1], [64, -127, 2, 5]]).to(dtype), rounding="stochastic"
    )
    for value in (5.0, 1.0, 7.0):
        w[:, 3:].fill_(value)
    assert w.dequantize().tolist() == [[127, 3, -100, 7], [64, -127, 2, 7]]


# copy_


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("granularity", [PerTensor(), PerRow(), PerGroup(2)])
def test_copy_of_the_same_recipe_is_bit_exact(granularity: Any, symmetric: bool) -> None:
    source = made(granularity, symmetric=symmetric)
    source.scale.mul_(2)  # no block reaches the end of its range any more: requantizing would change the payload
    source.qdata.div_(2, rounding_mode="trunc")
    target = made(granularity, symmetric=symmetric)
    before = addresses(target)
    with lamina.strict():
        assert target.copy_(source) is target
    assert torch.equal(target.qdata, source.qdata)
    assert torch.equal(target.scale, source.scale)
    assert torch.equal(target.dequantize(), source.dequantize())
    assert addresses(target) == before


@pytest.mark.parametrize("target_dtype", DTYPES)
@pytest.mark.parametrize("source_dtype", DTYPES)
def test_copy_across_dtypes_is_bit_exact(source_dtype: torch.dtype, target_dtype: torch.dtype) -> None:
    source = ScaledInt8Tensor.quantize(torch.randn(3, 5).to(source_dtype))
    target = ScaledInt8Tensor.quantize(torch.zeros(3, 5, dtype=target_dtype))
    target.copy_(source)
    assert (target.dtype, target.logical_dtype) == (target_dtype, target_dtype)
    assert torch.equal(target.qdata, source.qdata)
    assert torch.equal(target.scale, source.scale)


@pytest.mark.parametrize("source_dtype", DTYPES)
@pytest.mark.parametrize("target_dtype", DTYPES)
def test_copy_from_plain_quantizes(source_dtype: torch.dtype, target_dtype: torch.dtype) -> None:
    """The values are converted first, as in any copy."""
    values = torch.randn(30, 50).to(source_dtype)
    target = ScaledInt8Tensor.quantize(torch.zeros(30, 50, dtype=target_dtype))
    before = addresses(target)
    target.copy_(values)
    wanted = ScaledInt8Tensor.quantize(values.to(target_dtype))
    assert torch.equal(target.qdata, wanted.qdata)
    assert torch.equal(target.scale, wanted.scale)
    assert addresses(target) == before
    target.copy_(torch.tensor(2))  # broadcast, and an integer
    assert target.dequantize().unique().tolist() == [pytest.approx(2, rel=2**-23)]  # 127 times a float32 scale


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.complex64])
@pytest.mark.parametrize("part", [lambda w: w, lambda w: w.t(), lambda w: w[:, :3]])
def test_copy_to_plain_dequantizes(part: View, dtype: torch.dtype) -> None:
    source = part(made())
    target = torch.zeros(source.shape, dtype=dtype)
    assert target.copy_(source) is target
    assert type(target) is torch.Tensor
    assert torch.equal(target, source.dequantize().to(dtype))


@given(st.data())
def test_copy_between_any_two_recipes(data: st.DataObject) -> None:
    """The payload as it is where the grids agree, whatever the dtypes; else the values."""
    shape = (4, 6)
    target, source = (
        ScaledInt8Tensor.quantize(
            torch.randn(shape), data.draw(granularities(shape)), data.draw(st.sampled_from(DTYPES)), symmetric=symmetric
        )
        for symmetric in (data.draw(st.booleans()), data.draw(st.booleans()))
    )
    places, same = addresses(target), target.blocks == source.blocks
    same = same and (target.zero_point is None) == (source.zero_point is None)
    values = source.dequantize().to(target.dtype)
    wanted = source.to(target.dtype) if same else target.requantize(values)
    target.copy_(source)
    assert torch.equal(target.dequantize(), wanted.dequantize())
    assert addresses(target) == places


def test_copy_between_different_axes_requantizes() -> None:
    source, target = made(shape=(4, 4)), made(shape=(4, 4))
    target.copy_(source.t())
    assert target.scale.shape == (4, 1)
    assert torch.equal(target.qdata, ScaledInt8Tensor.quantize(source.dequantize().t()).qdata)


def test_copy_broadcasts() -> None:
    w, row = made(), made(shape=(6,))
    w.copy_(row)
    assert torch.equal(w.dequantize(), ScaledInt8Tensor.quantize(row.dequantize().expand(4, 6)).dequantize())


@pytest.mark.parametrize(
    "copies", [lambda x: x.copy_(x), lambda x: x[:, :3].copy_(x[:, 3:]), lambda x: x[:2].copy_(x[2:])]
)
def test_copy_within_one_tensor(copies: View) -> None:
    w = made()
    before, reference = w.dequantize(), w.dequantize()
    copies(w)
    copies(reference)
    assert bool(((w.dequantize() - reference).abs() <= w.scale * 0.51).all())
    assert torch.equal(w.dequantize()[2:, 3:], before[2:, 3:])


@pytest.mark.parametrize("symmetric", [True, False])
def test_copy_to_a_part_leaves_the_others(symmetric: bool) -> None:
    """Of the same grid as the source: its scale must not become that of the values outside."""
    w, source = made(symmetric=symmetric), made(shape=(4, 3), symmetric=symmetric).mul_(9.0)
    before = w.dequantize()
    w[:, :3].copy_(source)
    after = w.dequantize()
    assert bool(((after[:, :3] - source.dequantize()).abs() <= w.scale * 0.51).all())
    assert bool(((after[:, 3:] - before[:, 3:]).abs() <= w.scale * 0.51).all())


@pytest.mark.parametrize("shape", [(2, 6), (4, 5), (4, 6, 1), (24,)])
def test_nothing_is_written_by_a_copy_of_another_shape(shape: tuple[int, ...]) -> None:
    w = made()
    before = w.dequantize()
    for source in (torch.ones(shape), made(shape=shape)):
        for part in (w, w[:, :3]):
            with pytest.raises(RuntimeError):
                part.copy_(source)
    assert torch.equal(w.dequantize(), before)


def test_copy_to_and_from_meta() -> None:
    w, meta = made(), made().to("meta")
    assert meta.copy_(w) is meta
    assert meta.copy_(torch.ones(4, 6)).is_meta
    with pytest.raises(NotImplementedError, match="meta"):
        w.copy_(meta)


# lists of views


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: [x[:, :3], x[:, 3:]],
        lambda x: [x[0:2], x[2:4]],
        lambda x: [x[0:2][:, :3], x[0:2][:, 3:], x[2:]],
        lambda x: [x[1], x[0, 2:], x[0, :2]],
        lambda x: [x.view(2, 12)[0], x.view(2, 12)[1]],
        lambda x: [x, x],
    ],
)
def test_a_list_of_parts_is_written(parts: View) -> None:
    w = made()
    reference = w.dequantize()
    torch._foreach_mul_(parts(w), 2.0)
    torch._foreach_mul_(parts(reference), 2.0)
    assert torch.allclose(w.dequantize(), reference, rtol=2**-20)


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: [x[:, :4], x[:, 3:]],
        lambda x: [x, x[:, 3:]],
        lambda x: [x[0:2], x[1:3]],
        lambda x: [x, x.t()],
        lambda x: [x, x.detach()],
        lambda x: [x[0:2], x[0:2, 0:2]],
        lambda x: [x[0:2], x.view(2, 2, 6)[0]],
        lambda x: [x[0:2][:, :3], x[:, 2:4]],
        lambda x: [x.view(6, 4)[0], x[0, :2]],
    ],
)
def test_parts_that_overlap_are_refused(parts: View) -> None:
    """Each would be decoded by itself, and one write be lost."""
    w = made()
    before = w.dequantize()
    with pytest.raises(UnwrittenError, match="the same elements of one wrapper"):
        torch._foreach_mul_(parts(w), 2.0)
    assert torch.equal(w.dequantize(), before)


# changes of shape in place

IN_PLACE: dict[str, View] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, -1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "squeeze_ of a dim": lambda x: x.unsqueeze_(0).squeeze_(0),
    "squeeze_ of none": lambda x: x.squeeze_(1),
    "squeeze_ of dims": lambda x: x.unsqueeze_(0).squeeze_((0, 1)),
    "several": lambda x: x.t_().unsqueeze_(0).transpose_(1, 2).squeeze_(0),
}


@pytest.mark.parametrize("start", [lambda w: w, lambda w: w[:, :3], lambda w: w[1:][:, ::2], lambda w: w[:2]])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_change_of_shape_in_place(name: str, start: View) -> None:
    """The same object has the new geometry, shows the same memory, and a write to it reaches the tensor."""
    w = made()
    was, reference = state(w), w.dequantize()
    view, wanted = start(w), start(reference)
    assert IN_PLACE[name](view) is view
    IN_PLACE[name](wanted)
    assert (view.shape, view.stride(), view.storage_offset()) == (
        wanted.shape,
        wanted.stride(),
        wanted.storage_offset(),
    )
    assert torch.equal(view.dequantize(), wanted)
    check_inner(view)
    view.mul_(3.0)
    wanted.mul_(3.0)
    assert bool(((view.dequantize() - wanted).abs() <= view.scale.amax() * 0.51).all())
    if view is not w:
        assert torch.equal(view.dequantize(), replayed(w, wanted))
        assert_is(w, was, reference, wanted)


@pytest.mark.parametrize("cut", [lambda w: w[:, :3], lambda w: w[:, 1], lambda w: w[0, :3]])
def test_a_part_of_a_tensor_that_was_transposed_since(cut: View) -> None:
    """It shows the memory that it showed, and that is written: columns, where the tensor has rows now."""
    w = made(shape=(4, 4))
    was, reference = state(w), w.dequantize()
    view, wanted = cut(w), cut(reference)
    w.t_()
    assert torch.equal(view.dequantize(), wanted)
    view.fill_(5.0)
    wanted.fill_(5.0)
    w.t_()
    assert_is(w, was, reference, wanted)


def test_a_parameter_changes_its_shape() -> None:
    p = torch.nn.Parameter(made())
    with torch.no_grad():
        p.t_()
    (p * 2).sum().backward()
    assert p.grad is not None
    assert (p.shape, p.grad.shape) == ((6, 4), (6, 4))


# what a part is a part of


def by_hand(part: ScaledInt8Tensor) -> ScaledInt8Tensor:
    return ScaledInt8Tensor(part.qdata, part.scale, partial=True)


def unflattened(part: ScaledInt8Tensor) -> ScaledInt8Tensor:
    names, context = part.__tensor_flatten__()
    inner = {name: getattr(part, name) for name in names}
    return ScaledInt8Tensor.__tensor_unflatten__(inner, context, part.shape, part.stride())


@pytest.mark.parametrize("rebuild", [by_hand, unflattened, lambda p: by_hand(p)[0], lambda p: by_hand(p).detach().t()])
def test_a_part_of_an_unknown_tensor_refuses_writes(rebuild: View) -> None:
    w = made()
    before = w.dequantize()
    part = rebuild(w[:, :3])
    assert part.partial
    for write in (
        lambda x: x.fill_(1.0),
        lambda x: x.copy_(torch.ones(x.shape)),
        lambda x: torch._foreach_add_([x], 1.0),
    ):
        with pytest.raises(PartialViewError, match=r"shares its scale with values outside it.*clone\(\)"):
            write(part)
    assert torch.equal(w.dequantize(), before)
    own = part.clone()
    own.fill_(1.0)
    assert own.dequantize().unique().tolist() == [pytest.approx(1.0)]
    assert torch.equal(w.dequantize(), before)


def test_deepcopy_of_a_part_copies_what_it_is_a_part_of() -> None:
    """As for plain views: memory that two tensors share is shared by their copies."""
    w = made()
    before = w.dequantize()
    whole, part = copy.deepcopy([w, w[:, :3]])
    part.fill_(5.0)
    assert torch.equal(w.dequantize(), before)
    assert whole.dequantize()[:, :3].unique().tolist() == [5.0]
    alone = copy.deepcopy(w[:, :3])
    alone.fill_(5.0)
    assert alone.dequantize().unique().tolist() == [5.0]
    assert torch.equal(w.dequantize(), before)


def saved(part: ScaledInt8Tensor) -> Any:
    file = io.BytesIO()
    torch.save(part, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("store", [lambda part: pickle.loads(pickle.dumps(part)), saved])
def test_a_saved_part_is_a_tensor_of_its_own(store: View) -> None:
    w = made()
    before = w.dequantize()
    part = store(w[:, :3])
    assert not part.partial
    assert torch.equal(part.dequantize(), before[:, :3])
    part.fill_(5.0)
    assert part.dequantize().unique().tolist() == [pytest.approx(5.0)]
    assert torch.equal(w.dequantize(), before)


def test_data_of_a_part_is_that_part() -> None:
    w = made()
    w[:, :3].data.fill_(5.0)
    assert w.dequantize()[:, :3].unique().tolist() == [pytest.approx(5.0, rel=2**-20)]


def test_a_parameter_that_is_a_part_is_trained() -> None:
    w = made()
    p = torch.nn.Parameter(w[:, :3])
    (p**2).sum().backward()
    before = w.dequantize()
    torch.optim.SGD([p], lr=0.1).step()
    expected = before.clone()
    expected[:, :3] *= 0.8
    assert bool(((w.dequantize() - expected).abs() <= w.scale * 0.51).all())
    assert torch.equal(p.detach().dequantize(), w.dequantize()[:, :3])


def test_expanded_values_are_not_written_one_by_one() -> None:
    w = made(shape=(1, 6))
    before = w.dequantize()
    wide = w.expand(4, 6)
    for write in (lambda x: x.mul_(2.0), lambda x: x.copy_(torch.randn(4, 6))):
        with pytest.raises(RuntimeError, match=SHARED):
            write(wide)
    assert torch.equal(w.dequantize(), before)
    wide[2].fill_(3.0)  # one of them is all of them
    assert w.dequantize().unique().tolist() == [pytest.approx(3.0)]


def test_a_write_to_nothing_changes_nothing() -> None:
    for granularity in (PerTensor(), PerRow()):
        w = made(granularity, shape=(4, 1))
        before = w.dequantize()
        for nothing in (w[:, :0], w[:0], w.expand(4, 0), w[2:2, :0]):
            nothing.fill_(9.0)
        assert torch.equal(w.dequantize(), before)


def test_a_cut_off_the_grid_writes_nothing() -> None:
    w = made(PerGroup(3))
    before = w.dequantize()
    with pytest.raises(GridError, match="multiples of 3"):
        w[:, 1:4] = 1.0
    assert torch.equal(w.dequantize(), before)
    w[:, 4] = 1.0
    assert torch.equal(w.dequantize()[:, :3], before[:, :3])
    assert w.dequantize()[:, 4].tolist() == [pytest.approx(1.0, abs=float(w.scale.max()) / 2)] * 4
