"""Two runs side by side: which figures got slower or faster, and whether that is more than chance.

The two runs were apart, and the machine's mood changes between them. So what is compared are ratios to a baseline that
took turns with the figure in its own run, where there are such; and bare times only where there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .loading import Key, Loaded, ResultsFileError

THRESHOLD = 0.05
TIME = "time"
# Fields that are ratios to a baseline, the one that comes first being taken; and whether more of it is better.
RATIOS = {"to_plain": False, "ratio": False, "to_base": False, "speedup": True}
# What makes figures of two machines mean different things; other differences are said, and are often the point.
SAME_MACHINE = ("machine", "processor", "cpu_capability", "timed_with_threads", "frequency_governor", "cuda_device")
PASSING = ("load_average",)


@dataclass(frozen=True)
class Cost:
    """A median and its interval; less is better."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, summary: Mapping[str, Any], *, inverted: bool = False) -> Cost:
        """Of the JSON of a summary; `inverted`: of one over it."""
        low, high = summary["interval"]
        cost = cls(summary["median"], low, high)
        return cls(1 / cost.median, 1 / cost.high, 1 / cost.low) if inverted else cost


@dataclass(frozen=True)
class Compared:
    """One figure of both runs. `what` is compared: the time in nanoseconds, or a ratio, as a cost."""

    bench: str
    name: str
    what: str
    before: Cost
    after: Cost
    threshold: float

    @property
    def change(self) -> float:
        """By which part of it the cost rose; less than 0: it fell."""
        return self.after.median / self.before.median - 1

    @property
    def interval(self) -> tuple[float, float]:
        """Of the change: from the nearest to the farthest that both intervals allow."""
        return self.after.low / self.before.high - 1, self.after.high / self.before.low - 1

    @property
    def verdict(self) -> str:
        """Slower or faster, where the intervals don't meet and the change is above the threshold; or alike."""
        low, high = self.interval
        if low > 0 and self.change > self.threshold:
            return "slower"
        return "faster" if high < 0 and self.change < -self.threshold else "alike"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**asdict(self), "change": self.change, "interval": self.interval, "verdict": self.verdict}


@dataclass(frozen=True)
class Comparison:
    """All figures of two runs: those that both have, and those that only the one or the other has."""

    compared: list[Compared]
    only_before: list[Key]
    only_after: list[Key]

    def of(self, verdict: str) -> list[Compared]:
        """Those with this verdict, the greatest change first."""
        found = (each for each in self.compared if each.verdict == verdict)
        return sorted(found, key=lambda each: abs(each.change), reverse=True)


def compare(before: Loaded, after: Loaded, threshold: float = THRESHOLD) -> Comparison:
    """Pair the figures by bench and name; a ResultsFileError if there is no pair."""
    mine, its = before.figures, after.figures
    both = [key for key in mine if key in its]
    if not both:
        raise ResultsFileError(
            f"{before.path} and {after.path} have no figure in common: "
            f"the one has {_named(before)}, the other {_named(after)}."
        )
    return Comparison(
        [_compared(key, mine[key], its[key], threshold) for key in both],
        [key for key in mine if key not in its],
        [key for key in its if key not in mine],
    )


def _named(loaded: Loaded) -> str:
    names = [bench for bench, _ in loaded.figures]
    counts = [f"{names.count(name)} of {name}" for name in dict.fromkeys(names)]
    return ", ".join(counts) or "none"


def _compared(key: Key, mine: Mapping[str, Any], its: Mapping[str, Any], threshold: float) -> Compared:
    for field, inverted in RATIOS.items():
        if mine.get(field) and its.get(field):
            before, after = (Cost.of(each[field], inverted=inverted) for each in (mine, its))
            return Compared(*key, f"1 / {field}" if inverted else field, before, after, threshold)
    return Compared(*key, TIME, Cost.of(mine["time_ns"]), Cost.of(its["time_ns"]), threshold)


def differences(before: Loaded, after: Loaded) -> tuple[list[str], list[str]]:
    """Why the runs should not be compared, and what else differs between them: each in words."""
    keys = [key for key in {**before.machine, **after.machine} if key not in PASSING]
    grave: list[str] = []
    slight: list[str] = []
    for key in keys:
        mine, its = before.machine.get(key), after.machine.get(key)
        if mine != its:
            (grave if key in SAME_MACHINE else slight).append(f"{key}: {mine} before, {its} after")
    grave += _clocks(before, after)
    slight += [f"{each.path} is incomplete" for each in (before, after) if not each.complete]
    return grave, slight


def _clocks(before: Loaded, after: Loaded) -> Iterator[str]:
    """Benches that were timed by two clocks."""
    for bench in before.benches.keys() & after.benches.keys():
        mine, its = (each.benches[bench].get("settings", {}).get("clock") for each in (before, after))
        if mine != its:
            yield f"{bench}: timed by {mine} before, by {its} after"
