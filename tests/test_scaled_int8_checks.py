"""Bad input to ScaledInt8Tensor: each error names the argument."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from lamina import (
    GradientCutError,
    InnerTensorError,
    LayoutError,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    QuantizationError,
    ScaledInt8Tensor,
)

QDATA, SCALE = torch.zeros(3, 4, dtype=torch.int8), torch.ones(3, 1)
WAYS = [ScaledInt8Tensor.quantize, ScaledInt8Tensor.from_plain]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("make", WAYS)
def test_values_that_are_not_floating(make: Any, dtype: torch.dtype) -> None:
    with pytest.raises(QuantizationError, match=f"dtype of the values is {dtype}.*float16"):
        make(torch.zeros(3, 4, dtype=dtype))


@pytest.mark.parametrize("values", [[1.0, 2.0], 3.0, None])
def test_values_that_are_no_tensor(values: Any) -> None:
    with pytest.raises(QuantizationError, match=r"torch\.as_tensor"):
        ScaledInt8Tensor.quantize(values)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
)
def test_values_that_are_not_strided(make: Any) -> None:
    with pytest.raises(LayoutError, match="'values' has layout"):
        ScaledInt8Tensor.quantize(make())


@pytest.mark.parametrize("granularity", ["row", PerRow, None, 0])
def test_unknown_granularity(granularity: Any) -> None:
    for make in (
        lambda: ScaledInt8Tensor.quantize(torch.ones(3, 4), granularity),
        lambda: ScaledInt8Tensor.from_plain(torch.ones(3, 4), granularity=granularity),
        lambda: ScaledInt8Tensor(QDATA, SCALE, None, granularity),
    ):
        with pytest.raises(QuantizationError, match=r"granularity = .*PerRow\(\)"):
            make()


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64, "float32", torch.float8_e4m3fn])
def test_logical_dtype_that_is_not_floating(dtype: Any) -> None:
    for make in (
        lambda: ScaledInt8Tensor.quantize(torch.ones(3, 4), logical_dtype=dtype),
        lambda: ScaledInt8Tensor(QDATA, SCALE, None, PerRow(), dtype),
    ):
        with pytest.raises((QuantizationError, TypeError), match=r"logical_dtype|argument 'dtype'"):
            make()


def test_values_that_require_grad() -> None:
    values = torch.ones(3, 4, requires_grad=True)
    with pytest.raises(GradientCutError, match="from_plain"):
        ScaledInt8Tensor.quantize(values)
    with pytest.raises(GradientCutError, match="from_plain"):
        ScaledInt8Tensor(QDATA, SCALE).requantize(values)
    with torch.no_grad():
        assert not ScaledInt8Tensor.quantize(values).requires_grad


@pytest.mark.parametrize(
    ("qdata", "scale", "text"),
    [
        (QDATA.float(), SCALE, "qdata is torch.float32"),
        (QDATA, SCALE.double(), "scale is torch.float64"),
        (QDATA, torch.ones(3), r"scale has shape \(3,\)"),
        (QDATA, torch.ones(4, 1), r"scale has shape \(4, 1\)"),
        (QDATA, torch.ones(3, 2), r"scale has shape \(3, 2\)"),
        (QDATA, SCALE.to("meta"), "scale is on meta"),
        (QDATA.to_sparse(), SCALE, "'qdata' has layout"),
        (None, SCALE, "'qdata'.* NoneType"),
    ],
)
def test_inner_tensors_that_do_not_fit(qdata: Any, scale: Any, text: str) -> None:
    with pytest.raises((InnerTensorError, LayoutError), match=text):
        ScaledInt8Tensor(qdata, scale)


ZERO = torch.zeros(3, 1, dtype=torch.int8)


@pytest.mark.parametrize(
    ("zero_point", "text"),
    [
        (ZERO.float(), "zero_point is torch.float32"),
        (ZERO.int(), "zero_point is torch.int32"),
        (ZERO[:, 0], r"zero_point has shape \(3,\).* asks for \(3, 1\)"),
        (ZERO[:2], r"zero_point has shape \(2, 1\)"),
        (ZERO.to("meta"), "zero_point is on meta, qdata on cpu"),
        (0, "'zero_point'.* int"),
    ],
)
def test_a_zero_point_that_does_not_fit(zero_point: Any, text: str) -> None:
    with pytest.raises((InnerTensorError, LayoutError), match=text):
        ScaledInt8Tensor(QDATA, SCALE, zero_point)


@pytest.mark.parametrize(
    ("granularity", "shape"),
    [(PerTensor(), (3, 1)), (PerGroup(2), (3, 1)), (PerBlock((3, 2)), (3, 2)), (PerRow(), (1, 1))],
)
def test_the_granularity_says_the_shape_of_the_scale(granularity: Any, shape: tuple[int, ...]) -> None:
    wanted = granularity.scale_shape((3, 4))
    with pytest.raises(InnerTensorError, match=rf"scale has shape {re.escape(str(shape))};.*{re.escape(str(wanted))}"):
        ScaledInt8Tensor(QDATA, torch.ones(shape), None, granularity)
    assert ScaledInt8Tensor(QDATA, torch.ones(wanted), None, granularity).shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounding", "up"), ("rounding", None), ("rounding", 0), ("activation", "int4"), ("activation", None)],
)
def test_an_option_that_has_no_such_value(name: str, value: Any) -> None:
    for make in (
        lambda: ScaledInt8Tensor.quantize(torch.ones(3, 4), **{name: value}),
        lambda: ScaledInt8Tensor.from_plain(torch.ones(3, 4), **{name: value}),
        lambda: ScaledInt8Tensor(QDATA, SCALE, **{name: value}),
    ):
        with pytest.raises(QuantizationError, match=rf"{name} = .* is none of '"):
            make()


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_partial_is_a_flag(value: Any) -> None:
    with pytest.raises(QuantizationError, match="partial"):
        ScaledInt8Tensor(QDATA, SCALE, partial=value)


def test_inner_tensors_that_are_not_contiguous() -> None:
    payload = torch.randint(-127, 128, (4, 3)).to(torch.int8)
    w = ScaledInt8Tensor(payload.t(), torch.rand(6, 1)[::2] + 0.1)
    assert w.stride() == (1, 3)
    assert torch.equal(w.dequantize(), payload.t() * w.scale)
    w.fill_(2.0)
    assert payload.unique().tolist() == [127]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="rouding"):
        ScaledInt8Tensor.from_plain(torch.ones(3, 4), rouding="stochastic")


def test_requantize_with_another_shape() -> None:
    with pytest.raises(QuantizationError, match=r"\(3, 4\), got \(4, 3\)"):
        ScaledInt8Tensor(QDATA, SCALE).requantize(torch.ones(4, 3))


def test_nothing_is_written_by_a_failing_copy() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(3, 4))
    before = q.dequantize()
    with pytest.raises(RuntimeError, match="size"):
        q.copy_(torch.ones(2, 4))
    assert torch.equal(q.dequantize(), before)
