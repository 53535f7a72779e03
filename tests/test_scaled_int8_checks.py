"""Bad input to ScaledInt8Tensor: each error names the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lamina import GradientCutError, InnerTensorError, LayoutError, PerRow, QuantizationError, ScaledInt8Tensor

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
