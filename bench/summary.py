"""A summary: what rounds of a measurement say, with an interval that also holds where rounds resemble their neighbours.

The interval of a median is made of order statistics, so no shape of the noise is assumed: the ranks that enclose it
are those of a binomial with a chance of one half (David and Nagaraja, *Order Statistics*, section 7.1), in its normal
approximation. Rounds on one machine are not independent: a neighbour's process, or a clock rate, lasts for many of
them. The variance of a median then grows by the sum of the autocorrelations of "above or below it" (Sen, *On the
Bahadur representation of sample quantiles for sequences of phi-mixing random variables*, 1972). That sum is estimated
by the initial monotone sequence (Geyer, *Practical Markov chain Monte Carlo*, 1992), which errs on the wide side.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Interval = tuple[float, float]
REPORTED = 0.95


@dataclass(frozen=True)
class Summary:
    """A sample's median and quartiles, and a 95 % interval of its median."""

    median: float
    lower_quartile: float
    upper_quartile: float
    interval: Interval

    @classmethod
    def of(cls, sample: Sequence[float]) -> Summary:
        """Summarize a sample of one value at least, in the order in which it was taken.

        Of less than six values the interval is all of their range, which is less sure than 95 %.
        """
        if not sample:
            raise ValueError("no rounds were measured: there is nothing to summarize. Pass rounds >= 1.")
        ordered = sorted(sample)
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        low, high = median_interval(sample, REPORTED)
        interval = max(low, ordered[0]), min(high, ordered[-1])
        return cls(statistics.median(ordered), quartiles[0], quartiles[2], interval)

    @property
    def width(self) -> float:
        """The interval's width, as a part of the median."""
        return relative(self.interval[1] - self.interval[0], self.median)

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        return relative(self.upper_quartile - self.lower_quartile, self.median)


def relative(distance: float, median: float) -> float:
    """A distance as a part of the median; infinite where the median is zero, unless the distance is zero, too."""
    if not distance:
        return 0.0
    return abs(distance / median) if median else math.inf


def median_interval(sample: Sequence[float], confidence: float) -> Interval:
    """The order statistics that enclose the median so surely; infinite where there are too few rounds to be so sure."""
    count = len(sample)
    ordered = sorted(sample)
    half_width = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count * inflation(sample)) / 2
    low, high = math.floor(count / 2 - half_width), math.ceil(count / 2 + half_width) - 1
    if low < 0 or high >= count:
        return -math.inf, math.inf
    return ordered[low], ordered[max(low, high)]


def relative_width(sample: Sequence[float], confidence: float) -> float:
    """The width of that interval, as a part of the median; infinite where there are too few rounds."""
    low, high = median_interval(sample, confidence)
    return relative(high - low, statistics.median(sample))


def inflation(sample: Sequence[float]) -> float:
    """How many rounds in a row say as much about the median as one independent round would: 1 or more."""
    values = np.asarray(sample, dtype=float)
    signs = np.sign(values - np.median(values))
    variance = float(signs @ signs)
    if not variance:
        return 1.0
    total, smallest = -variance, math.inf
    for lag in range(0, max(2, len(signs) // 2), 2):
        pair = sum(float(signs[: len(signs) - each] @ signs[each:]) for each in (lag, lag + 1))
        smallest = min(smallest, pair)
        if smallest <= 0:
            break
        total += 2 * smallest
    return max(1.0, total / variance)


def paired_ratios(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    """One ratio a round: the machine's mood cancels inside a round."""
    return [numerator / denominator for numerator, denominator in zip(mine, base, strict=True)]


def paired_ratio(mine: Sequence[float], base: Sequence[float]) -> Summary:
    """One ratio a round, then the summary."""
    return Summary.of(paired_ratios(mine, base))


def least_squares_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the least-squares line through the points (x, y)."""
    if len(set(xs)) < 2:
        raise ValueError(f"a slope needs two different x at least, got {list(xs)}.")
    return float(statistics.linear_regression(xs, ys).slope)
