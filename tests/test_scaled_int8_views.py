"""Views that reorder, cut or repeat dims: lazy, int8, with the scale and the zero point of their own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import VIEWS, block_numbers, check_inner, take_steps, weights

import lamina
from lamina import GridError, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor

aten = torch.ops.aten
View = Callable[[Any], Any]
REORDERINGS: dict[str, View] = {
    "t": lambda w: w.t(),
    "T": lambda w: w.T,
    "mT": lambda w: w.mT,
    "transpose": lambda w: w.transpose(-1, 0),
    "transpose by keyword": lambda w: torch.transpose(input=w, dim0=0, dim1=1),
    "permute": lambda w: w.permute(1, 0),
    "permute by keyword": lambda w: torch.permute(input=w, dims=(-1, 0)),
    "twice": lambda w: w.t().t(),
    "identity": lambda w: w.permute(0, 1),
}
CUTS: dict[str, View] = {
    "slice of rows": lambda w: w[1:3],
    "slice of columns": lambda w: w[:, 2:4],
    "steps": lambda w: w[::2, ::4],
    "beyond the end": lambda w: w[2:99, -2:99],
    "nothing": lambda w: w[:, 4:4],
    "narrow": lambda w: w.narrow(1, 2, 4),
    "select a row": lambda w: w[-1],
    "select a column": lambda w: w[:, 3],
    "select by a tensor": lambda w: w[torch.tensor(2)],
    "both": lambda w: w[1, 3],
    "split": lambda w: w.split(2, 1)[1],
    "split of sizes": lambda w: w.split([2, 4], dim=-1)[1],
    "chunk": lambda w: w.chunk(3, 1)[2],
    "tensor_split": lambda w: w.tensor_split([2], 1)[1],
    "unbind": lambda w: w.unbind(1)[5],
    "ellipsis": lambda w: w[..., None, 2:4],
}
GRANULARITIES = [PerTensor(), PerRow(), PerGroup(2), PerBlock((-1, 1)), PerBlock((2, 2))]


def addresses(w: Any) -> tuple[int, int]:
    return w.qdata.data_ptr(), w.scale.data_ptr()


@given(st.data())
def test_a_chain_of_views_shows_what_it_shows_of_the_values(data: st.DataObject) -> None:
    """Bit for bit, with the same strides; int8 wherever that is possible; ``partial`` exactly where a scale is shared
    with values that are not in the view."""
    w = data.draw(weights())
    view, _, said = take_steps(data.draw, w, w.dequantize(), VIEWS)
    numbers = take_steps_again(w, view, said)
    if type(view) is ScaledInt8Tensor and numbers.numel():
        blocks = block_numbers(tuple(w.shape), w.blocks)
        shown = torch.zeros(w.numel(), dtype=torch.bool)
        shown[numbers.flatten()] = True
        touched = torch.isin(blocks, blocks.flatten()[shown])
        assert view.partial == bool((touched.flatten() & ~shown).any()), said


def take_steps_again(w: ScaledInt8Tensor, view: Any, said: str) -> torch.Tensor:
    """Which values of ``w`` the view shows, told by the memory of its payload."""
    if type(view) is not ScaledInt8Tensor:
        return torch.empty(0)
    assert view.qdata.untyped_storage().data_ptr() == w.qdata.untyped_storage().data_ptr(), said
    assert view.scale.untyped_storage().data_ptr() == w.scale.untyped_storage().data_ptr(), said
    return torch.arange(w.numel()).as_strided(view.shape, view.stride(), view.storage_offset())


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("name", [*REORDERINGS, *CUTS])
def test_a_view_is_lazy_and_int8(name: str, granularity: Any, symmetric: bool) -> None:
    view = {**REORDERINGS, **CUTS}[name]
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), granularity, symmetric=symmetric)
    wanted = view(w.dequantize())
    try:
        with lamina.strict():
            shown = view(w)
    except GridError:
        assert (name, granularity) in {(n, g) for n in ("slice of rows", "steps") for g in GRANULARITIES[2:]}
        return
    assert type(shown) is ScaledInt8Tensor
    assert (shown.shape, shown.stride(), shown.storage_offset()) == (
        wanted.shape,
        wanted.stride(),
        wanted.storage_offset(),
    )
    assert shown.qdata.untyped_storage().data_ptr() == w.qdata.data_ptr()
    assert shown.scale.untyped_storage().data_ptr() == w.scale.data_ptr()
    assert torch.equal(shown.dequantize(), wanted)
    check_inner(shown)


@pytest.mark.parametrize("name", REORDERINGS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5, 1), (1, 1), (0, 3), (3, 0)])
def test_reordering_is_lazy(name: str, shape: tuple[int, int]) -> None:
    view, w = REORDERINGS[name], ScaledInt8Tensor.quantize(torch.randn(shape))
    turned, wanted = view(w), view(w.dequantize())
    assert (turned.shape, turned.stride()) == (wanted.shape, wanted.stride())
    assert addresses(turned) == addresses(w)
    assert turned.scale.shape == view(torch.empty(w.scale.shape)).shape
    assert torch.equal(turned.dequantize(), wanted)


def test_a_tensor_of_more_dims_is_permuted_with_its_scale() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(2, 3, 4))
    turned = w.permute(2, 0, 1)
    assert (turned.shape, turned.scale.shape) == ((4, 2, 3), (1, 2, 3))
    assert torch.equal(turned.dequantize(), w.dequantize().permute(2, 0, 1))


@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (lambda w: w[:, 1:], r"slice 1:6:1 of dim 1 cuts groups of 3 .*\(4, 6\).* multiples of 3, the step 1"),
        (lambda w: w[:, :4], "slice 0:4:1"),
        (lambda w: w[:, ::2], "slice 0:6:2"),
        (lambda w: w[:, -1:], "slice 5:6:1"),
        (lambda w: w.narrow(1, 2, 3), "slice 2:5:1"),
        (lambda w: w.split(2, 1), "slice 0:2:1"),
        (lambda w: w.split([1, 5], 1), "slice 0:1:1"),
        (lambda w: w.chunk(3, 1), "slice 0:2:1"),
        (lambda w: w.tensor_split(4, 1), "slice 0:2:1"),
        (lambda w: w.t()[1:], "slice 1:6:1 of dim 0"),
    ],
)
def test_a_cut_through_groups_names_the_legal_step(cut: View, text: str) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), PerGroup(3))
    with pytest.raises(GridError, match=text):
        cut(w)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda w: w.permute(0, 0), RuntimeError),
        (lambda w: w.permute(0), RuntimeError),
        (lambda w: w.transpose(0, 2), IndexError),
        (lambda w: w.unsqueeze(3), IndexError),
        (lambda w: w.squeeze(2), IndexError),
        (lambda w: w.select(0, 4), IndexError),
        (lambda w: w.select(2, 0), IndexError),
        (lambda w: w[4], IndexError),
        (lambda w: w[:, :, 0], IndexError),
        (lambda w: w.narrow(0, 3, 2), RuntimeError),
        (lambda w: w[::-1], ValueError),
        (lambda w: w.split([1, 2], 0), RuntimeError),
        (lambda w: w.split(-1, 0), RuntimeError),
        (lambda w: w.unbind(2), IndexError),
        (lambda w: w.expand(3, 6), RuntimeError),
        (lambda w: w.expand(4), RuntimeError),
        (lambda w: w.unsqueeze(0).t(), RuntimeError),
    ],
)
@pytest.mark.parametrize("granularity", [PerRow(), PerTensor(), PerGroup(2)])
def test_what_plain_tensors_refuse_is_refused_alike(call: View, error: type[Exception], granularity: Any) -> None:
    for x in (torch.randn(4, 6), ScaledInt8Tensor.quantize(torch.randn(4, 6), granularity)):
        with pytest.raises(error):
            call(x)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_expanding_repeats_the_scale_with_the_values(granularity: Any) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6), granularity)
    wide = w.unsqueeze(1).expand(3, 4, 5, 6)
    assert type(wide) is ScaledInt8Tensor
    assert wide.stride() == (0, 6, 0, 1)
    assert addresses(wide) == addresses(w)
    assert torch.equal(wide.dequantize(), w.dequantize().unsqueeze(1).expand(3, 4, 5, 6))


def test_a_squeeze_goes_by_the_payload() -> None:
    """The scale has dims of size 1 that the payload has not."""
    w = ScaledInt8Tensor.quantize(torch.randn(1, 3, 1, 5), PerTensor())
    assert (w.squeeze().shape, w.squeeze().scale.shape) == ((3, 5), (1, 1))
    assert w.squeeze(1).shape == w.shape
    assert w.squeeze((0, 1)).scale.shape == (1, 1, 1)


@pytest.mark.parametrize("name", ["t", "T", "transpose", "permute"])
def test_the_gradient_goes_through_a_view(name: str) -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    factor = torch.randn(5, 3)
    (REORDERINGS[name](p) * factor).sum().backward()
    assert p.grad is not None
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, factor.t())


@pytest.mark.parametrize("name", CUTS)
def test_the_gradient_goes_through_a_cut(name: str) -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(4, 6)))
    plain = p.detach().dequantize().requires_grad_()
    for leaf in (p, plain):
        (CUTS[name](leaf) ** 2).sum().backward()
    assert p.grad is not None
    assert type(p.grad) is torch.Tensor
    assert plain.grad is not None
    assert torch.equal(p.grad, plain.grad)


def test_detach_and_alias_share_the_payload() -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    for view in (p.detach(), p.data, aten.alias.default(p.detach())):
        assert type(view) is ScaledInt8Tensor
        assert addresses(view) == addresses(p)
        assert not view.requires_grad
    p.detach().zero_()
    assert p.dequantize().abs().max() == 0


@pytest.mark.parametrize("cut", [lambda w: w[:, :3], lambda w: w[:, 2], lambda w: w[::2, ::2].t()])
def test_a_cut_shares_its_scale_and_says_so(cut: View) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 6))
    assert not w.partial
    assert cut(w).partial
    assert cut(w).detach().partial
    assert cut(w).unsqueeze(0).partial
    for own in (cut(w).clone(), cut(w).half(), cut(w).requantize(cut(w).dequantize()), torch.cat([cut(w), cut(w)])):
        assert not own.partial


@pytest.mark.parametrize("whole", [lambda w: w[:], lambda w: w[:, 0:6], lambda w: w[1:3], lambda w: w[0], torch.t])
def test_a_view_of_whole_blocks_is_not_partial(whole: View) -> None:
    assert not whole(ScaledInt8Tensor.quantize(torch.randn(4, 6))).partial


def test_a_place_that_says_nothing_of_others_is_not_partial() -> None:
    """Steps over a dim of size 1; one of many expanded values, all of which are the same memory."""
    assert not ScaledInt8Tensor.quantize(torch.randn(4, 1))[:, ::2].partial
    assert not ScaledInt8Tensor.quantize(torch.randn(6), PerTensor()).expand(3, 6)[1].partial
    assert ScaledInt8Tensor.quantize(torch.randn(4, 1)).expand(4, 0).partial  # of no values, with a scale of others


def test_the_recipe_survives() -> None:
    w = ScaledInt8Tensor.quantize(
        torch.randn(4, 6), PerRow(), torch.bfloat16, symmetric=False, rounding="stochastic", activation="int8"
    )
    for other in (w.t().t(), w.detach(), w[1:3], w[:, :2], w[0], w.unsqueeze(0), w.expand(2, 4, 6), *w.unbind()):
        assert (other.logical_dtype, other.dtype) == (torch.bfloat16, torch.bfloat16)
        assert (other.rounding, other.activation) == ("stochastic", "int8")
        assert other.granularity == PerRow()
        assert other.zero_point is not None
