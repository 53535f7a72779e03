"""What keeps the payload: lazy transposition, copies, conversions, moves; and writing through a transposed view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

import lamina
from lamina import PerBlock, PerRow, ScaledInt8Tensor

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
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


def addresses(w: Any) -> tuple[int, int]:
    return w.qdata.data_ptr(), w.scale.data_ptr()


@pytest.mark.parametrize("name", REORDERINGS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5, 1), (1, 1), (0, 3), (3, 0)])
def test_reordering_is_lazy(name: str, shape: tuple[int, int]) -> None:
    view, w = REORDERINGS[name], ScaledInt8Tensor.quantize(torch.randn(shape))
    with lamina.strict():
        turned = view(w)
    wanted = view(w.dequantize())
    assert type(turned) is ScaledInt8Tensor
    assert (turned.shape, turned.stride()) == (wanted.shape, wanted.stride())
    assert addresses(turned) == addresses(w)
    assert turned.scale.shape == view(torch.empty(w.scale.shape)).shape
    assert torch.equal(turned.dequantize(), wanted)


def test_a_tensor_of_more_dims_is_permuted_with_its_scale() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(2, 3, 4))
    turned = w.permute(2, 0, 1)
    assert (turned.shape, turned.scale.shape) == ((4, 2, 3), (1, 2, 3))
    assert torch.equal(turned.dequantize(), w.dequantize().permute(2, 0, 1))


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5, 1), (1, 1), (0, 3), (4, 4), (2, 3, 4)])
def test_as_strided_is_lazy_where_it_reorders(shape: tuple[int, ...]) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(shape))
    for wanted in (w.dequantize(), w.dequantize().transpose(0, -1)):
        view = w.as_strided(wanted.size(), wanted.stride())
        assert type(view) is ScaledInt8Tensor
        assert addresses(view) == addresses(w)
        assert torch.equal(view.dequantize(), wanted)


def test_as_strided_looks_at_the_offset() -> None:
    payload = torch.arange(-15, 15).to(torch.int8).view(6, 5)
    w = ScaledInt8Tensor(payload[3:], torch.ones(3, 1))
    for offset in (None, 15):
        assert addresses(w.as_strided((3, 5), (5, 1), offset)) == addresses(w)
    with suppress(RuntimeError):  # other memory than that of this tensor: an error, or at least not this tensor
        assert type(w.as_strided((3, 5), (5, 1), 0)) is not ScaledInt8Tensor


@pytest.mark.parametrize(("size", "stride", "offset"), [((2, 5), (5, 1), 5), ((15,), (1,), 0), ((2, 2), (7, 2), 1)])
def test_as_strided_of_another_geometry(size: Any, stride: Any, offset: int) -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    assert torch.equal(w.as_strided(size, stride, offset), w.dequantize().as_strided(size, stride, offset))
    w.t().as_strided(size, stride, offset).zero_()
    assert torch.equal(w.as_strided(size, stride, offset), torch.zeros(size))


@pytest.mark.parametrize("name", REORDERINGS)
def test_a_write_through_a_view_reaches_its_base(name: str) -> None:
    """The rows of the base keep their own scales, so the result is what the base would have been given."""
    view, w = REORDERINGS[name], ScaledInt8Tensor.quantize(torch.randn(4, 4) * torch.tensor([[1.0], [9], [81], [729]]))
    before, factor = addresses(w), torch.randn(4, 4)
    expected = view(w.requantize(view(view(w.dequantize()) * factor)))  # each view here is its own inverse
    view(w).mul_(factor)
    assert torch.equal(view(w).dequantize(), expected.dequantize())
    assert addresses(w) == before


def test_requantizing_a_transposed_tensor_keeps_its_axis() -> None:
    values = torch.randn(3, 5)
    turned = ScaledInt8Tensor.quantize(torch.zeros(3, 5)).t().requantize(values.t())
    assert turned.scale.shape == (1, 3)
    assert torch.equal(turned.dequantize(), ScaledInt8Tensor.quantize(values).dequantize().t())


@pytest.mark.parametrize("name", ["t", "T", "transpose", "permute"])
def test_the_gradient_goes_through_a_view(name: str) -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    factor = torch.randn(5, 3)
    (REORDERINGS[name](p) * factor).sum().backward()
    assert p.grad is not None
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, factor.t())


@pytest.mark.parametrize("memory_format", [torch.preserve_format, torch.contiguous_format])
@pytest.mark.parametrize("name", ["t", "identity"])
def test_a_clone_owns_a_copy_of_the_payload(name: str, memory_format: torch.memory_format) -> None:
    w = REORDERINGS[name](ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    copied, plain = w.clone(memory_format=memory_format), w.dequantize()
    assert type(copied) is ScaledInt8Tensor
    assert copied.stride() == plain.as_strided(w.shape, w.stride()).clone(memory_format=memory_format).stride()
    assert torch.equal(copied.qdata, w.qdata)
    assert torch.equal(copied.scale, w.scale)
    copied.zero_()
    assert torch.equal(w.dequantize(), plain)


def test_contiguous_keeps_the_payload() -> None:
    turned = ScaledInt8Tensor.quantize(torch.randn(3, 5)).t()
    flat = turned.contiguous()
    assert type(flat) is ScaledInt8Tensor
    assert flat.is_contiguous()
    assert torch.equal(flat.dequantize(), turned.dequantize())


def test_detach_and_alias_share_the_payload() -> None:
    p = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    for view in (p.detach(), p.data, aten.alias.default(p.detach())):
        assert type(view) is ScaledInt8Tensor
        assert addresses(view) == addresses(p)
        assert not view.requires_grad
    p.detach().zero_()
    assert p.dequantize().abs().max() == 0


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
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    plain = w.dequantize()
    for converted in (w.to(torch.float32, copy=True), w.half(), w.to("cpu", copy=True)):
        converted.zero_()
    assert torch.equal(w.dequantize(), plain)


def test_moving_takes_both_inner_tensors() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    moved = w.to("meta", torch.bfloat16)
    assert type(moved) is ScaledInt8Tensor
    assert [t.device.type for t in (moved, moved.qdata, moved.scale)] == ["meta"] * 3
    assert (moved.dtype, moved.qdata.dtype, moved.scale.dtype) == (torch.bfloat16, torch.int8, torch.float32)


def test_copy_of_the_same_recipe_is_bit_exact() -> None:
    source = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    source.scale.mul_(2)  # no row reaches 127 times its scale any more: requantizing would change the payload
    source.qdata.div_(2, rounding_mode="trunc")
    target = ScaledInt8Tensor.quantize(torch.zeros(3, 5))
    before = addresses(target)
    with lamina.strict():
        assert target.copy_(source) is target
    assert torch.equal(target.qdata, source.qdata)
    assert torch.equal(target.scale, source.scale)
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_to_plain_dequantizes(dtype: torch.dtype) -> None:
    source, target = ScaledInt8Tensor.quantize(torch.randn(3, 5)), torch.zeros(3, 5, dtype=dtype)
    assert target.copy_(source) is target
    assert type(target) is torch.Tensor
    assert torch.equal(target, source.dequantize().to(dtype))


def test_copy_between_different_axes_requantizes() -> None:
    source, target = ScaledInt8Tensor.quantize(torch.randn(4, 4)), ScaledInt8Tensor.quantize(torch.zeros(4, 4))
    target.copy_(source.t())
    assert target.scale.shape == (4, 1)
    assert torch.equal(target.qdata, ScaledInt8Tensor.quantize(source.dequantize().t()).qdata)


def test_the_recipe_survives() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(3, 5), PerRow(), torch.bfloat16)
    for other in (w.t().t(), w.clone(), w.detach(), w.to("cpu", copy=True), w.requantize(torch.ones(3, 5))):
        assert (other.granularity, other.logical_dtype, other.dtype) == (PerRow(), torch.bfloat16, torch.bfloat16)
    assert w.t().granularity == PerBlock((-1, 1))
