"""Intervals and verdicts, on noise that was made: how often they are wrong, also where rounds resemble each other."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from lamina.bench.summary import inflation, median_interval
from lamina.bench.timing import Summary, least_squares_slope, paired_ratio
from lamina.bench.verdict import Verdict, differs, ratio_of_runs, verdict

RUNS = 400
ROUNDS = 100
NOISE = 0.04


def noise(rounds: int, correlation: float, seed: int) -> np.ndarray:
    """Normal noise of which each value resembles the one before (an autoregressive process of order one)."""
    fresh = np.random.default_rng(seed).standard_normal(rounds)
    found = np.empty(rounds)
    found[0] = fresh[0]
    for number in range(1, rounds):
        found[number] = correlation * found[number - 1] + math.sqrt(1 - correlation**2) * fresh[number]
    return found


def ratios(
    true: float, seed: int, rounds: int = ROUNDS, correlation: float = 0.0, spread: float = NOISE
) -> list[float]:
    return list(true * (1 + spread * noise(rounds, correlation, seed)))


# Summaries


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="no rounds"):
        Summary.of([])


def test_summary_of_a_known_sample() -> None:
    values = [float(value) for value in range(1, 102)]
    np.random.default_rng(0).shuffle(values)
    assert inflation(values) == pytest.approx(1, abs=0.3)
    found = Summary.of(values)
    assert (found.median, found.lower_quartile, found.upper_quartile) == (51, 26, 76)
    low, high = found.interval
    assert (low, high) == (41, 61)
    assert (found.width, found.spread) == (20 / 51, 50 / 51)


def test_the_width_of_nothing_is_infinite_unless_all_agree() -> None:
    assert Summary(0.0, 0.0, 0.0, (-1.0, 1.0)).width == math.inf
    assert Summary(0.0, 0.0, 0.0, (0.0, 0.0)).width == 0


def test_rounds_of_unequal_number_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])


def test_slope_is_least_squares() -> None:
    assert least_squares_slope([0, 1, 2, 3], [1.0, 3.0, 5.0, 7.0]) == pytest.approx(2)
    assert least_squares_slope([0, 1, 2], [0.0, 3.0, 3.0]) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="two different x"):
        least_squares_slope([1, 1], [1.0, 2.0])


# Intervals


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_the_interval_holds_the_median_as_often_as_it_says(confidence: float, correlation: float) -> None:
    missed = 0
    for seed in range(RUNS):
        low, high = median_interval(ratios(1.0, seed, rounds=300, correlation=correlation), confidence)
        missed += not low <= 1 <= high
    most = RUNS * (1 - confidence)
    assert missed <= most + 3 * math.sqrt(most) + 1


def test_an_interval_for_independent_rounds_would_miss_it_far_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.bench.summary.inflation", lambda _: 1.0)
    intervals = [median_interval(ratios(1.0, seed, correlation=0.6), 0.95) for seed in range(RUNS)]
    assert sum(not low <= 1 <= high for low, high in intervals) > 0.2 * RUNS


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.0, 1.0, 1.3), (0.6, 2.0, 4.0), (0.9, 5.0, 20.0)])
def test_rounds_that_resemble_each_other_count_for_less(correlation: float, least: float, most: float) -> None:
    found = [inflation(ratios(1.0, seed, rounds=400, correlation=correlation)) for seed in range(50)]
    assert least <= float(np.mean(found)) <= most


def test_too_few_rounds_enclose_nothing_surely() -> None:
    assert median_interval([1.0, 1.1] * 5, 0.999) == (-math.inf, math.inf)
    assert Summary.of([1.0, 3.0, 2.0]).interval == (1.0, 3.0)


# Verdicts


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_no_difference_is_found_between_a_variant_and_itself(correlation: float) -> None:
    found = Counter(differs(ratios(1.0, seed, correlation=correlation)) for seed in range(RUNS))
    assert found[True] <= 1


@pytest.mark.parametrize("true", [0.995, 1.005])
def test_a_difference_below_one_percent_is_none(true: float) -> None:
    assert {verdict(ratios(true, seed, rounds=2000)) for seed in range(20)} == {Verdict.ALIKE}


@pytest.mark.parametrize(("true", "expected"), [(1.05, Verdict.SLOWER), (1 / 1.05, Verdict.FASTER)])
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_planted_difference_of_five_percent_is_found(correlation: float, true: float, expected: Verdict) -> None:
    found = Counter(verdict(ratios(true, seed, correlation=correlation)) for seed in range(RUNS))
    assert found[expected] >= 0.95 * RUNS
    assert set(found) <= {expected, Verdict.UNCLEAR}


def test_noise_that_hides_five_percent_is_unclear_not_alike() -> None:
    found = Counter(verdict(ratios(1.0, seed, rounds=20, spread=0.2)) for seed in range(RUNS))
    assert found == {Verdict.UNCLEAR: RUNS}


# Two runs


def test_the_ratio_of_two_runs_has_the_interval_of_both() -> None:
    missed = 0
    for seed in range(RUNS):
        new, old = ratios(1.05, seed), ratios(1.0, seed + RUNS)
        centre, (low, high) = ratio_of_runs(new, old, confidence=0.95)
        assert low <= centre <= high
        missed += not low <= 1.05 <= high
    assert missed <= 0.05 * RUNS + 3 * math.sqrt(0.05 * RUNS)
    assert missed > 0


def test_a_run_of_too_few_rounds_shows_nothing() -> None:
    assert ratio_of_runs([1.0, 2.0], [1.0, 2.0])[1] == (0.0, math.inf)
