"""The arithmetic of int8 with a scale: every bound is the one that numerics.py derives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lamina import PerRow, QuantizationError, ScaledInt8Tensor

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(), (1,), (5,), (0,), (0, 4), (4, 0), (1, 5), (5, 1), (3, 7), (2, 3, 4), (2, 1, 3, 3)]
HALF_STEP = 1 / 2 + 2**-15  # in steps of the scale: half to even, and the float32 roundings on the way
TINY = torch.finfo(torch.float32).tiny


def error_bound(q: ScaledInt8Tensor) -> torch.Tensor:
    """How far ``q.dequantize()`` may be from what was quantized: half a step, then one rounding to the dtype."""
    unit_roundoff = torch.finfo(q.dtype).eps / 2
    largest = 127 * q.scale.double()
    return HALF_STEP * q.scale.double() + unit_roundoff * largest


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip_is_within_half_a_step(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.randn(shape).to(dtype) * 3
    q = ScaledInt8Tensor.quantize(values)
    back = q.dequantize()
    assert (q.shape, q.dtype, q.stride()) == (values.shape, dtype, values.stride())
    assert (back.shape, back.dtype, type(back)) == (values.shape, dtype, torch.Tensor)
    assert q.qdata.dtype is torch.int8
    assert q.scale.dtype is torch.float32
    assert q.scale.shape == ((*shape[:-1], 1) if shape else ())
    assert bool(((back.double() - values.double()).abs() <= error_bound(q)).all())


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_any_finite_row_is_within_half_a_step(row: list[float]) -> None:
    values = torch.tensor([row], dtype=torch.float32)
    q = ScaledInt8Tensor.quantize(values)
    exact = q.qdata.double() * q.scale.double()
    assert bool(((exact - values.double()).abs() <= HALF_STEP * q.scale.double()).all())
    assert bool(q.dequantize().isfinite().all())


def test_scale_and_payload_by_hand() -> None:
    q = ScaledInt8Tensor.quantize(torch.tensor([[254.0, 1.0, 3.0, -5.0, -254.0], [0.5, 0.25, 0.0, 0.0, 0.0]]))
    assert torch.equal(q.scale, torch.tensor([[2.0], [0.5 / 127]]))
    assert q.qdata.tolist() == [[127, 0, 2, -2, -127], [127, 64, 0, 0, 0]]  # 0.5, 1.5, -2.5 and 63.5: half to even


def test_float64_is_computed_in_float64() -> None:
    values = torch.randn(9, 50, dtype=torch.float64)
    q = ScaledInt8Tensor.quantize(values)
    assert torch.equal(q.dequantize(), q.qdata.double() * q.scale.double())
    assert torch.equal(q.qdata, (values / q.scale.double()).round().to(torch.int8))
    between = torch.tensor([[127.0, 0.5 + 1e-9]], dtype=torch.float64)  # in float32 this is 0.5, which rounds to 0
    assert ScaledInt8Tensor.quantize(between).qdata.tolist() == [[127, 1]]


def test_rows_are_independent() -> None:
    small, large = torch.randn(1, 6) * 1e-6, torch.randn(1, 6) * 1e6
    q = ScaledInt8Tensor.quantize(torch.cat([small, large]))
    assert torch.equal(q.dequantize()[:1], ScaledInt8Tensor.quantize(small).dequantize())


def test_requantizing_its_own_values_changes_no_payload() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(20, 33))
    assert torch.equal(q.requantize(q.dequantize()).qdata, q.qdata)


def test_a_row_of_zeros_is_exactly_zero() -> None:
    q = ScaledInt8Tensor.quantize(torch.tensor([[0.0, -0.0], [1.0, 2.0]]))
    assert q.qdata[0].tolist() == [0, 0]
    assert q.scale[0].item() == TINY
    assert q.dequantize()[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [1e-45, 1e-44, 1e-40, TINY, 127 * TINY, 1e-30])
def test_denormals_keep_a_normal_scale(value: float) -> None:
    values = torch.tensor([[value, -value, 0.0]])
    q = ScaledInt8Tensor.quantize(values)
    assert q.scale.item() >= TINY
    assert bool(((q.dequantize().double() - values.double()).abs() <= HALF_STEP * q.scale.double()).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_values_stay_finite(dtype: torch.dtype) -> None:
    largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    values = torch.tensor([[largest, -largest, 1.0]], dtype=torch.float64).to(dtype)
    back = ScaledInt8Tensor.quantize(values).dequantize()
    assert bool(back.isfinite().all())
    assert back[0, 0].item() == pytest.approx(largest, rel=2**-7)


@pytest.mark.parametrize(
    ("bad", "name"), [(float("nan"), "1 NaN"), (float("inf"), "1 infinite"), (-float("inf"), "1 infinite")]
)
def test_a_nonfinite_value_is_refused_by_name(bad: float, name: str) -> None:
    values = torch.ones(3, 4)
    values[1, 2] = bad
    for make in (ScaledInt8Tensor.quantize, ScaledInt8Tensor.from_plain):
        with pytest.raises(QuantizationError, match=rf"\(3, 4\).*{name}"):
            make(values)
    with pytest.raises(QuantizationError, match=name):
        ScaledInt8Tensor.quantize(torch.ones(3, 4)).requantize(values)


def test_a_value_too_large_for_the_scale_is_refused() -> None:
    with pytest.raises(QuantizationError, match="too large for a float32 scale"):
        ScaledInt8Tensor.quantize(torch.tensor([[1e300]], dtype=torch.float64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nonfinite_value_written_in_place_reads_nan(bad: float) -> None:
    q = ScaledInt8Tensor.quantize(torch.ones(2, 3))
    q.mul_(torch.tensor([[1.0, bad, 1.0], [1.0, 1.0, 2.0]]))
    back = q.dequantize()
    assert bool(back[0].isnan().all())
    assert back[1].tolist() == [pytest.approx(1, abs=2 / 127), pytest.approx(1, abs=2 / 127), 2.0]


@pytest.mark.parametrize("make_view", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[:1].expand(4, 6)])
def test_noncontiguous_and_expanded_values(make_view: object) -> None:
    values = make_view(torch.randn(4, 6))  # type: ignore[operator]
    q = ScaledInt8Tensor.quantize(values)
    assert torch.equal(q.dequantize(), ScaledInt8Tensor.quantize(values.contiguous()).dequantize())
    q.mul_(2)
    assert bool(((q.dequantize().double() - 2 * values.double()).abs() <= 2.01 * error_bound(q)).all())


def test_meta_values() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(3, 4, device="meta"))
    assert (q.device.type, q.qdata.device.type, q.scale.shape) == ("meta", "meta", (3, 1))


def test_granularity_is_compared_by_value() -> None:
    assert PerRow() == PerRow()
    assert hash(PerRow()) == hash(PerRow())
