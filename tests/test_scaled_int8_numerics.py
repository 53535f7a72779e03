"""The arithmetic of int8 with a scale: every bound is the one that numerics.py derives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from int8_chains import granularities

from lamina import Granularity, PerGroup, PerRow, PerTensor, QuantizationError, ScaledInt8Tensor

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(), (1,), (5,), (0,), (0, 4), (4, 0), (1, 5), (5, 1), (3, 7), (2, 3, 4), (2, 1, 3, 3)]
HALF_STEP = 1 / 2 + 2**-15  # in steps of the scale: half to even, and the float32 roundings on the way
TINY = torch.finfo(torch.float32).tiny


def spread(q: ScaledInt8Tensor) -> torch.Tensor:
    """The scale of each value, in float64."""
    scale = q.scale.double()
    for dim, block in enumerate(q.blocks):
        if block > 1:
            scale = scale.repeat_interleave(block, dim)
    return scale.expand(q.shape)


def exact(q: ScaledInt8Tensor) -> torch.Tensor:
    """What the payload stands for, in float64: products of 32 bits are exact there."""
    steps = q.qdata.double()
    if q.zero_point is not None:
        zero = q.zero_point.double()
        for dim, block in enumerate(q.blocks):
            if block > 1:
                zero = zero.repeat_interleave(block, dim)
        steps = steps - zero
    return steps * spread(q)


def assert_within(q: ScaledInt8Tensor, values: torch.Tensor, steps: float = HALF_STEP) -> None:
    """The bound of numerics.py, then one rounding to the dtype; zeros stay, and nothing becomes infinite."""
    assert bool(((exact(q) - values.double()).abs() <= steps * spread(q)).all())
    back = q.dequantize()
    info = torch.finfo(q.dtype)
    rounding = exact(q).abs() * (info.eps / 2 + 2**-24) + info.smallest_normal * info.eps
    assert bool(((back.double() - exact(q)).abs() <= rounding).all())
    assert bool((back[values == 0] == 0).all())
    assert bool(back.isfinite().all())


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


# asymmetric, and every granularity


def adversarial(dtype: torch.dtype) -> torch.Tensor:
    """Rows of 8: all magnitudes, one sign, halves, one value, a peak, zeros and denormals, a narrow range far out."""
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(12, 16, 8, generator=generator, dtype=torch.float64)
    powers = torch.randint(-140, 120, (12, 16, 1), generator=generator)
    halves = torch.randint(-254, 255, (16, 8), generator=generator).double() / 2
    halves[:, 0] = 127
    rows = [
        normal[0] * 2.0 ** powers[0],
        normal[1].abs() * 2.0 ** powers[1],
        -normal[2].abs() * 2.0 ** powers[2],
        halves,
        halves * (1 + torch.randint(-3, 4, (16, 8), generator=generator) * 2.0**-23),
        normal[5][:, :1].expand(16, 8),
        torch.where(normal[6] > 0, normal[6] * 1e-3, normal[6] * 1e3),
        torch.where(normal[7] > 0, 0.0, normal[7] * 1e-40),
        10 + normal[8] * 1e-3,
        normal[9] * 10.0 ** torch.randint(-44, 38, (16, 1), generator=generator),
    ]
    largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    values = torch.cat(rows)
    half = torch.finfo(torch.float32).max / 2  # an asymmetric range is up to twice as long
    return values.clamp(-min(largest, half), min(largest, half)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("granularity", [PerTensor(), PerRow(), PerGroup(4)])
def test_adversarial_values_are_within_the_bound(granularity: Granularity, symmetric: bool, dtype: torch.dtype) -> None:
    values = adversarial(dtype)
    assert_within(ScaledInt8Tensor.quantize(values, granularity, symmetric=symmetric), values)
    stochastic = ScaledInt8Tensor.quantize(values, granularity, symmetric=symmetric, rounding="stochastic", seed=1)
    assert_within(stochastic, values, 1 + 2**-15)


@given(st.data())
def test_any_values_are_within_the_bound(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.sampled_from([(4,), (2, 6), (3, 1), (1, 4), (2, 2, 4)]))
    numel = int(torch.Size(shape).numel())
    magnitude = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max / 2)
    floats = st.floats(-magnitude, magnitude, allow_nan=False)
    values = torch.tensor(data.draw(st.lists(floats, min_size=numel, max_size=numel)), dtype=torch.float64)
    values = values.to(dtype).reshape(shape)
    granularity = data.draw(granularities(shape))
    assert_within(ScaledInt8Tensor.quantize(values, granularity, symmetric=data.draw(st.booleans())), values)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0, -1.0, 10.0])
def test_decoded_values_of_an_asymmetric_range_are_found_again(shift: float) -> None:
    """But for the rounding of the scale; of 2000 blocks one may get another grid, and moves by less than a step."""
    q = ScaledInt8Tensor.quantize(torch.randn(4000, 32, generator=torch.manual_seed(0)) + shift, symmetric=False)
    moved = (q.requantize(q.dequantize()).dequantize() - q.dequantize()).abs() / q.scale
    assert float((moved > 2**-10).any(1).double().mean()) <= 1e-3
    assert float(moved.max()) < 1


@pytest.mark.parametrize("row", [[3.0, 1.0], [-3.0, -1.0], [5.0, 5.0], [-5.0, -5.0], [-1e-6, 1.0], [-1.0, 1e-6]])
def test_an_asymmetric_range_ends_on_the_grid(row: list[float]) -> None:
    """The end that asks for the larger scale is a multiple of it, and no value is clamped."""
    values = torch.tensor([row, [0.0, 0.0]])
    q = ScaledInt8Tensor.quantize(values, symmetric=False)
    assert_within(q, values)
    steps = values[0].double() / q.scale[0].double()
    assert float((steps - steps.round()).abs().min()) <= 255 * 2**-23
    whole = steps.round()
    assert float(whole.max() - whole.min().clamp(max=0)) <= 255
    assert q.dequantize()[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("symmetric", [True, False])
def test_scale_payload_and_zero_point_by_hand(symmetric: bool) -> None:
    """Of 255 steps 170 lie below zero and 85 above."""
    values = torch.tensor([[-340.0, 170.0, 3.0, 0.0]])
    q = ScaledInt8Tensor.quantize(values, symmetric=symmetric)
    if symmetric:
        assert q.zero_point is None
        assert q.qdata.tolist() == [[-127, 64, 1, 0]]  # 63.5: half to even
        return
    assert q.zero_point is not None
    assert (q.scale.tolist(), q.zero_point.tolist()) == ([[2.0]], [[42]])
    assert q.qdata.tolist() == [[-128, 127, 44, 42]]  # 1.5 steps: half to even


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_requantizing_is_stable(symmetric: bool, dtype: torch.dtype) -> None:
    """A tensor that is decoded and requantized again and again stays where it is, after the first time."""
    q = ScaledInt8Tensor.quantize(torch.randn(30, 17).to(dtype), symmetric=symmetric)
    q = q.requantize(q.dequantize())
    again = q
    for _ in range(5):
        again = again.requantize(again.dequantize())
    assert torch.allclose(again.dequantize().double(), q.dequantize().double(), rtol=1e-6 + 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.0, -1.0), (1.0, -1.0), (1.0, -0.5), (0.3, -1.0), (1.0, 1e-7)])
def test_the_ends_of_a_dtype_stay_finite(ends: tuple[float, float], symmetric: bool, dtype: torch.dtype) -> None:
    """float16 decodes 65520 to infinity: half a step beyond 65504 would be."""
    largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    values = (torch.tensor([ends], dtype=torch.float64) * largest).to(dtype)
    if not symmetric and dtype is not torch.float16 and ends[0] - ends[1] > 1:
        with pytest.raises(QuantizationError, match="range too large"):
            ScaledInt8Tensor.quantize(values, symmetric=False)
        return
    q = ScaledInt8Tensor.quantize(values, symmetric=symmetric)
    assert_within(q, values)
    assert_within(q.requantize(q.dequantize()), q.dequantize())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_block_with_a_nonfinite_value_reads_nan(
    bad: float, symmetric: bool, rounding: str, dtype: torch.dtype
) -> None:
    """All of it, and nothing else."""
    q = ScaledInt8Tensor.quantize(torch.ones(2, 4, dtype=dtype), PerGroup(2), symmetric=symmetric, rounding=rounding)
    q[0, 1] = bad
    assert q.dequantize().isnan().tolist() == [[True, True, False, False], [False] * 4]
    q[0, 0:2] = 2.0  # and it can be written again
    assert bool(q.dequantize().isfinite().all())


@pytest.mark.parametrize("symmetric", [True, False])
def test_float64_beyond_float32(symmetric: bool) -> None:
    """Refused where a tensor is made; in place, such a block is NaN, as one with an infinite value."""
    with pytest.raises(QuantizationError, match="too large for a float32 scale"):
        ScaledInt8Tensor.quantize(torch.tensor([[1e200, 1.0]], dtype=torch.float64), symmetric=symmetric)
    q = ScaledInt8Tensor.quantize(torch.ones(2, 2, dtype=torch.float64), symmetric=symmetric)
    q[0] = 1e200
    assert q.dequantize().isnan().tolist() == [[True, True], [False, False]]
    small = ScaledInt8Tensor.quantize(torch.tensor([[1e-200, -1e-300]], dtype=torch.float64), symmetric=symmetric)
    assert small.dequantize().tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("granularity", [PerTensor(), PerRow(), PerGroup(1)])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (1, 0), (2, 0, 3), (1,), (1, 1), (1, 5), (5, 1)])
def test_shapes_of_nothing_and_one(shape: tuple[int, ...], symmetric: bool, granularity: Granularity) -> None:
    values = torch.randn(shape)
    q = ScaledInt8Tensor.quantize(values, granularity, symmetric=symmetric)
    assert_within(q, values)
    assert_within(q.mul_(2), values * 2, 2.01)
    x = torch.randn(3, shape[-1])
    assert (x @ q.mT).shape == (x @ values.mT).shape if len(shape) > 1 else (x @ q).shape == (x @ values).shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_long_end_stays_finite_beside_any_other(sign: float, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    shares = torch.cat([torch.linspace(0, 1, 400), 2.0 ** -torch.arange(1, 40)])
    other = shares if dtype is torch.float16 else shares * 2.0**-26  # a longer range has no float32 scale
    values = (torch.stack([torch.ones(len(other)), -other], 1).double() * largest * sign).to(dtype)
    assert_within(ScaledInt8Tensor.quantize(values, symmetric=False), values)
