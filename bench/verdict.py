"""A verdict: whether one variant is slower or faster than another, or whether that cannot be told.

A 95 % interval leaves out the truth once in twenty times; where many figures are compared, that is a false alarm in
each run. A difference is therefore reported only where the 99.9 % interval of the paired ratio's median lies wholly
beyond 1 %: two copies of the same code may differ by some tenths of a percent for good, by where their memory lies.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

from .summary import Interval, Summary, median_interval

CONFIDENCE = 0.999
LEAST = 0.01
VISIBLE = 0.05


class Verdict(enum.Enum):
    """What the rounds of two variants say."""

    SLOWER = "slower"
    FASTER = "faster"
    ALIKE = "alike"
    UNCLEAR = "unclear"

    @property
    def differs(self) -> bool:
        """Whether a difference was found."""
        return self in {Verdict.SLOWER, Verdict.FASTER}


def verdict(ratios: Sequence[float]) -> Verdict:
    """Judge the ratios of the rounds, in their order: the variant's time over its baseline's.

    ALIKE: a difference of 5 % would have been seen, and there is none. UNCLEAR: the rounds are too few or too noisy.
    """
    return verdict_of(median_interval(ratios, CONFIDENCE))


def verdict_of(interval: Interval) -> Verdict:
    """Judge the interval of a ratio."""
    low, high = interval
    if low > 1 + LEAST:
        return Verdict.SLOWER
    if high < 1 / (1 + LEAST):
        return Verdict.FASTER
    if low > 1 / (1 + VISIBLE) and high < 1 + VISIBLE:
        return Verdict.ALIKE
    return Verdict.UNCLEAR


def differs(ratios: Sequence[float]) -> bool:
    """Whether the ratios of the rounds show a difference.

    >>> differs([1.05, 1.06, 1.04, 1.05, 1.05, 1.06] * 5), differs([1.0, 1.01, 0.99, 1.02, 0.98, 1.0] * 5)
    (True, False)
    """
    return verdict(ratios).differs


def ratio_of_runs(new: Sequence[float], old: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, Interval]:
    """The ratio of two medians whose rounds are not paired (of two runs, say), and its interval.

    The two intervals are combined on the logarithm (Zou and Donner, *Construction of confidence limits about effect
    measures*, 2008). What differs between two processes for good, such as where memory lies, is not in it.
    """
    numerator, denominator = (_logarithms(sample, confidence) for sample in (new, old))
    centre = numerator[1] - denominator[1]
    low = centre - math.hypot(numerator[1] - numerator[0], denominator[2] - denominator[1])
    high = centre + math.hypot(numerator[2] - numerator[1], denominator[1] - denominator[0])
    return math.exp(centre), (math.exp(low), math.exp(high) if math.isfinite(high) else math.inf)


def _logarithms(sample: Sequence[float], confidence: float) -> tuple[float, float, float]:
    low, high = median_interval(sample, confidence)
    return (math.log(low) if low > 0 else -math.inf), math.log(Summary.of(sample).median), math.log(high)
