"""Stochastic rounding: unbiased, reproducible, the same in eager and compiled code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lamina import PerGroup, PerTensor, QuantizationError, ScaledInt8Tensor

SEEDS = 400


def rounded(values: torch.Tensor, **source: Any) -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(values, rounding="stochastic", **source)


def fractions() -> torch.Tensor:
    """Rows with scale 1: fractions of all sizes, of both signs, small and large."""
    steps = torch.cat([torch.linspace(-126, 126, 62), torch.linspace(-1, 1, 62)])
    return torch.stack(
        [torch.cat([torch.tensor([127.0, -127.0]), steps]), torch.cat([torch.tensor([-127.0, 0]), -steps])]
    )


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("source", ["seed", "generator", "default generator"])
def test_the_mean_over_seeds_is_the_value(source: str, symmetric: bool) -> None:
    """Each of ``SEEDS`` draws goes up with a probability of the fraction p: the mean has a standard error of
    ``sqrt(p (1 - p) / SEEDS)`` steps. No value is more than 4 of them off (about 250 values: 1 in 60 such tests would
    fail by chance, and the seeds are fixed), and neither is the mean over all values."""
    values = fractions()
    generator = torch.Generator().manual_seed(7)
    total = torch.zeros(values.shape, dtype=torch.float64)
    for seed in range(SEEDS):
        drawn: dict[str, Any] = {"seed": seed} if source == "seed" else {}
        if source == "generator":
            drawn["generator"] = generator
        w = rounded(values, symmetric=symmetric, **drawn)
        total += w.dequantize().double() / w.scale.double()
    steps = values.double() / w.scale.double()
    fraction = steps - steps.floor()
    variance = (fraction * (1 - fraction)).clamp(min=1e-6) / SEEDS
    deviation = total / SEEDS - steps
    assert bool((deviation.abs() <= 4 * variance.sqrt() + 1e-5).all())  # 1e-5: the float32 division
    assert abs(float(deviation.sum())) <= 4 * math.sqrt(float(variance.sum()))


def test_nearest_rounding_would_fail_that() -> None:
    steps = fractions()
    deviation = ScaledInt8Tensor.quantize(steps).dequantize() - steps
    assert float(deviation.abs().max()) > 4 * math.sqrt(0.25 / SEEDS)


def test_each_value_is_one_of_its_two_neighbours() -> None:
    values = torch.randn(50, 64)
    w = rounded(values, seed=1)
    steps = values / w.scale
    assert bool(((w.qdata == steps.floor()) | (w.qdata == steps.ceil())).all())
    assert 0.4 < float((w.qdata > steps).float().mean()) < 0.6


@pytest.mark.parametrize("symmetric", [True, False])
def test_values_on_the_grid_never_move(symmetric: bool) -> None:
    """Steps of a power of two, so that no division rounds."""
    values = torch.arange(-127, 128).float().repeat(4, 1) * 2.0 ** torch.tensor([[0], [-20], [3], [60]])
    values[:, 0] = (
        -127 * 2.0 ** torch.tensor([0, -20, 3, 60]) if symmetric else -128 * 2.0 ** torch.tensor([0, -20, 3, 60])
    )
    for seed in range(50):
        assert torch.equal(rounded(values, symmetric=symmetric, seed=seed).dequantize(), values)


def test_requantizing_its_own_values_moves_next_to_none() -> None:
    """One in a million: those whose quotient the float32 division puts beside the integer."""
    w = rounded(torch.randn(100, 100), seed=0)
    moved = [int((w.requantize(w.dequantize(), seed=seed).qdata != w.qdata).sum()) for seed in range(20)]
    assert sum(moved) <= 3


def test_zeros_stay_zeros() -> None:
    values = torch.zeros(3, 40)
    values[1, 3], values[2] = 1.0, -0.0
    for seed in range(20):
        w = rounded(values, seed=seed)
        assert torch.equal(w.dequantize()[values == 0], torch.zeros(119))


# where the numbers come from


def test_a_generator_is_reproducible() -> None:
    values = torch.randn(20, 30)
    first, again = (rounded(values, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.qdata, again.qdata)
    generator = torch.Generator().manual_seed(3)
    rounded(values, generator=generator)
    assert not torch.equal(rounded(values, generator=generator).qdata, first.qdata)  # it has moved on


def test_a_seed_is_reproducible_as_a_number_and_as_a_tensor() -> None:
    values = torch.randn(20, 30)
    wanted = rounded(values, seed=5).qdata
    torch.manual_seed(99)
    same: list[Any] = [
        5,
        torch.tensor(5),
        torch.tensor([5]),
        torch.tensor(5, dtype=torch.int32),
        torch.tensor(5).to(torch.uint8),
    ]
    for seed in same:
        assert torch.equal(rounded(values, seed=seed).qdata, wanted)
    assert not torch.equal(rounded(values, seed=6).qdata, wanted)


def test_a_seed_leaves_the_default_generator_alone() -> None:
    before = torch.get_rng_state()
    rounded(torch.randn(3, 4, generator=torch.Generator()), seed=1)
    rounded(torch.randn(3, 4, generator=torch.Generator()), generator=torch.Generator())
    ScaledInt8Tensor.quantize(torch.ones(3, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_updates_draw_from_the_default_generator() -> None:
    weight, step = rounded(torch.randn(20, 30), seed=0), torch.randn(20, 30) * 1e-3

    def trained(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        w = weight.clone()
        for _ in range(3):
            w.add_(step)
        return w.dequantize()

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


def test_small_updates_move_the_weight_on_average() -> None:
    """A hundred steps of 1/50 of a step each: rounding to the nearest stays where it is."""
    step = torch.full((40, 64), 1 / 50)
    step[:, 0] = 0
    start = torch.zeros(40, 64)
    start[:, 0] = 127
    nearest, stochastic = ScaledInt8Tensor.quantize(start), rounded(start, seed=0)
    for _ in range(100):
        nearest.add_(step)
        stochastic.add_(step)
    assert torch.equal(nearest.dequantize(), start)
    moved = (stochastic.dequantize() - start)[:, 1:]
    # Each update moves a value by its mean and adds at most 1/4 of variance: a random walk of 100 steps.
    assert abs(float(moved.mean()) - 2) < 4 * math.sqrt(100 * (1 / 50) * (49 / 50) / moved.numel())


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2), (5, 5 + 2**32), (7, -7), (3, 3 << 20), (0, 2**31)])
def test_streams_of_different_seeds_are_independent(first: int, second: int) -> None:
    """Correlation of two streams of n bits: 4 standard errors are ``4 / sqrt(n)``. Also shifted against each other, as
    neighbouring seeds would be in a bad hash."""
    values = torch.full((1, 2**14), 0.5)
    values[0, 0] = 127.0
    one, two = (rounded(values, seed=seed).qdata[0, 1:].double() * 2 - 1 for seed in (first, second))
    for shift in (0, 1, -1, 7, 64):
        correlation = float((one * two.roll(shift)).mean())
        assert abs(correlation) < 4 / math.sqrt(len(one))


@pytest.mark.parametrize("seed", [0, 1, 2**31, -1, 12345678901234])
def test_neighbouring_places_are_independent(seed: int) -> None:
    values = torch.full((1, 2**14), 0.5)
    values[0, 0] = 127.0
    bits = rounded(values, seed=seed).qdata[0, 1:].double() * 2 - 1
    assert abs(float(bits.mean())) < 4 / math.sqrt(len(bits))
    for lag in (1, 2, 3, 16, 64, 128, 1000):
        assert abs(float((bits[lag:] * bits[:-lag]).mean())) < 4 / math.sqrt(len(bits) - lag)


def test_all_fractions_are_drawn_alike() -> None:
    """Not only the bit at one half: the share that goes up is the fraction, for fractions down to 1/1000."""
    count = 2**16
    for fraction in (0.001, 0.01, 0.1, 0.25, 0.75, 0.9, 0.999):
        values = torch.full((1, count), fraction)
        values[0, 0] = 127.0
        up = float(rounded(values, seed=11).qdata[0, 1:].double().mean())
        assert abs(up - fraction) < 4 * math.sqrt(fraction * (1 - fraction) / count)


def test_the_numbers_do_not_depend_on_the_strides() -> None:
    values = torch.randn(8, 6)
    assert torch.equal(rounded(values, seed=3).qdata, rounded(values.t().contiguous().t(), seed=3).qdata)
    assert torch.equal(rounded(values[:, ::2], seed=3).qdata, rounded(values[:, ::2].contiguous(), seed=3).qdata)


# compiled


def quantize_with(values: torch.Tensor, seed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    w = rounded(values, seed=seed)
    return w.qdata, w.scale


def check_compiled(backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(quantize_with, backend=backend, fullgraph=True)
    values = torch.randn(16, 24)
    for seed in (torch.tensor(0), torch.tensor(5), torch.tensor(2**40 + 1)):
        for got, wanted in zip(compiled(values, seed), quantize_with(values, seed), strict=True):
            assert torch.equal(got, wanted)


def test_a_seed_tensor_gives_the_same_compiled() -> None:
    check_compiled("aot_eager")


@pytest.mark.slow
def test_a_seed_tensor_gives_the_same_with_inductor() -> None:
    """The quotient may differ in its last bit there: the fractions here are far from any threshold that matters."""
    check_compiled("inductor")


def test_requantize_takes_a_seed_and_a_generator() -> None:
    values = torch.randn(6, 8)
    w = rounded(values, granularity=PerGroup(4), seed=0)
    assert torch.equal(w.requantize(values, seed=0).qdata, w.qdata)
    assert torch.equal(
        w.requantize(values, generator=torch.Generator().manual_seed(1)).qdata,
        rounded(values, granularity=PerGroup(4), generator=torch.Generator().manual_seed(1)).qdata,
    )


# bad input


@pytest.mark.parametrize("seed", [1.5, "a", True, [3], 2**63, -(2**63) - 1])
def test_a_seed_that_is_no_integer(seed: Any) -> None:
    with pytest.raises(QuantizationError, match="seed"):
        rounded(torch.randn(3, 4), seed=seed)
    with pytest.raises(QuantizationError, match="seed"):
        rounded(torch.randn(3, 4)).requantize(torch.randn(3, 4), seed=seed)


@pytest.mark.parametrize(
    "seed",
    [
        torch.tensor([1, 2]),
        torch.tensor(1.0),
        torch.tensor(True),
        torch.tensor(1j),
        torch.tensor([], dtype=torch.int64),
    ],
)
def test_a_seed_tensor_that_is_no_integer(seed: torch.Tensor) -> None:
    with pytest.raises(QuantizationError, match="seed is one integer"):
        rounded(torch.randn(3, 4), seed=seed)


def test_a_seed_without_data() -> None:
    with pytest.raises(QuantizationError, match=r"seed is on meta and has no data; the values are on cpu"):
        rounded(torch.randn(3, 4), seed=torch.tensor(1, device="meta"))


@pytest.mark.parametrize("generator", [3, "cpu", torch.Generator])
def test_a_generator_that_is_none(generator: Any) -> None:
    with pytest.raises(QuantizationError, match=r"is no torch\.Generator"):
        rounded(torch.randn(3, 4), generator=generator)


def test_numbers_come_from_one_place() -> None:
    with pytest.raises(QuantizationError, match="both generator and seed"):
        rounded(torch.randn(3, 4), generator=torch.Generator(), seed=3)


@pytest.mark.parametrize("source", [{"seed": 0}, {"generator": torch.Generator()}])
def test_rounding_to_the_nearest_draws_nothing(source: dict[str, Any]) -> None:
    for make in (
        lambda: ScaledInt8Tensor.quantize(torch.randn(3, 4), **source),
        lambda: ScaledInt8Tensor.quantize(torch.randn(3, 4)).requantize(torch.randn(3, 4), **source),
    ):
        with pytest.raises(QuantizationError, match=rf'{next(iter(source))} is given, and rounding="nearest"'):
            make()


@pytest.mark.parametrize("granularity", [PerTensor(), PerGroup(2)])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 4)])
def test_shapes_of_nothing_and_one(shape: tuple[int, ...], granularity: Any) -> None:
    for source in ({"seed": 3}, {"generator": torch.Generator()}, {}):
        w = rounded(torch.randn(shape), granularity=granularity, **source)
        assert w.dequantize().shape == shape
