"""The instrument: times variants against each other in one process, and reports medians, quartiles and paired ratios.

A single timing on a busy machine lies. Here all variants run in every round, in a new random order, so that whatever
the machine does meets all of them; ratios are formed inside a round and only then summarized. One thread, no garbage
collection while the clock runs; both are put back afterwards.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import torch

Clock = Callable[[], int]


@dataclass(frozen=True)
class Variant:
    """One thing to time: `function(*args)`, called in a loop inside `scope()`."""

    name: str
    function: Callable[..., object]
    args: tuple[Any, ...] = ()
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class Settings:
    """How long to measure: so many rounds, each running a variant for about `loop_ns` nanoseconds, or for one call.

    The clock is wall time; `time.thread_time_ns` leaves out what other processes on the machine take. A variant whose
    call takes less than `lead_below_ns` is called once before each loop, untimed: its data is then in the caches again,
    which those before it may have filled with theirs.
    """

    rounds: int = 60
    loop_ns: int = 2_000_000
    warmup_ns: int = 2_000_000
    seed: int = 0
    clock: Clock = time.perf_counter_ns
    lead_below_ns: int = 0


@dataclass(frozen=True)
class Summary:
    """A sample's median and quartiles, and a 95 % interval of its median (order statistics, no shape assumed)."""

    median: float
    lower_quartile: float
    upper_quartile: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, sample: Sequence[float]) -> Summary:
        """Summarize a sample of one value at least."""
        if not sample:
            raise ValueError("no rounds were measured: there is nothing to summarize. Pass rounds >= 1.")
        ordered = sorted(sample)
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        return cls(statistics.median(ordered), quartiles[0], quartiles[2], _median_interval(ordered))


def _median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The order statistics that enclose the median with 95 % confidence (normal approximation of the binomial)."""
    count = len(ordered)
    half_width = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half_width))
    high = min(count - 1, math.ceil(count / 2 + half_width) - 1)
    return ordered[low], ordered[max(low, high)]


@dataclass
class Measurement:
    """Nanoseconds per call, variant by variant and round by round. Round `i` of all variants belongs together."""

    rounds: dict[str, list[float]]
    calls: dict[str, int] = field(default_factory=dict)

    def time(self, name: str) -> Summary:
        """Nanoseconds per call of one variant."""
        return Summary.of(self.rounds[name])

    def ratio(self, name: str, baseline: str) -> Summary:
        """`name` over `baseline`, paired: each round gives one ratio."""
        return paired_ratio(self.rounds[name], self.rounds[baseline])

    def slopes(self, names: Mapping[int, str]) -> list[float]:
        """Nanoseconds per layer: a least-squares line through layer -> variant, one line a round."""
        layers = sorted(names)
        columns = [self.rounds[names[layer]] for layer in layers]
        return [least_squares_slope(layers, row) for row in zip(*columns, strict=True)]


def paired_ratio(mine: Sequence[float], base: Sequence[float]) -> Summary:
    """One ratio a round, then the summary: the machine's mood cancels inside a round."""
    return Summary.of([numerator / denominator for numerator, denominator in zip(mine, base, strict=True)])


def least_squares_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the least-squares line through the points (x, y)."""
    if len(set(xs)) < 2:
        raise ValueError(f"a slope needs two different x at least, got {list(xs)}.")
    return float(statistics.linear_regression(xs, ys).slope)


@contextmanager
def quiet_machine(threads: int = 1) -> Iterator[None]:
    """One thread and no garbage collection; both put back afterwards, whatever happens inside."""
    threads_before, gc_before = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    torch.set_num_threads(threads)
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        if gc_before:
            gc.enable()


def measure(variants: Sequence[Variant], settings: Settings = Settings()) -> Measurement:
    """Time all variants, alternating in random order. Names must differ: a result is found by its name."""
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise ValueError(f"variant names must differ, got {sorted(name for name in names if names.count(name) > 1)}.")
    order = random.Random(settings.seed)
    result = Measurement({name: [] for name in names})
    with quiet_machine():
        for variant in variants:
            _calls_that_take(settings.warmup_ns, variant, settings.clock)
        # Only once all are warm: a loop sized while cold would be shorter than the others', and cost more.
        costs = {variant.name: _cost_of_a_call(variant, settings) for variant in variants}
        result.calls = {name: max(1, round(settings.loop_ns / cost)) for name, cost in costs.items()}
        for _ in range(settings.rounds):
            for variant in order.sample(variants, len(variants)):
                calls = result.calls[variant.name]
                if costs[variant.name] < settings.lead_below_ns:
                    _time_loop(variant, 1, settings.clock)
                result.rounds[variant.name].append(_time_loop(variant, calls, settings.clock) / calls)
    return result


def rounds_within(seconds: float, variants: Sequence[Variant], settings: Settings, fewest: int) -> Settings:
    """The settings, with fewer rounds where they would take longer than so many seconds, but with `fewest` at least."""
    with quiet_machine():
        a_round = sum(max(settings.loop_ns, _time_loop(variant, 1, settings.clock)) for variant in variants)
    fitting = int(seconds * 1e9 / max(1, a_round))
    return replace(settings, rounds=min(settings.rounds, max(fewest, fitting)))


def _calls_that_take(nanoseconds: int, variant: Variant, clock: Clock) -> tuple[int, int]:
    """Double the calls until one loop takes so long; return them and the nanoseconds that they took."""
    calls = 1
    while (elapsed := max(1, _time_loop(variant, calls, clock))) < nanoseconds:
        calls *= 2
    return calls, elapsed


def _cost_of_a_call(variant: Variant, settings: Settings) -> float:
    """Nanoseconds, over calls that fill half a loop."""
    calls, elapsed = _calls_that_take(settings.loop_ns // 2, variant, settings.clock)
    return elapsed / calls


def _time_loop(variant: Variant, calls: int, clock: Clock) -> int:
    function, args = variant.function, variant.args
    with variant.scope():
        start = clock()
        for _ in repeat(None, calls):
            function(*args)
        return clock() - start


def describe_machine() -> dict[str, str | int]:
    """What a figure depends on besides the code: machine, versions, threads, CPU capability."""
    return {
        "machine": platform.machine(),
        "processor": _processor_name(),
        "cores": os.cpu_count() or 0,
        "system": platform.platform(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "timed_with_threads": 1,
        "interop_threads": torch.get_num_interop_threads(),
    }


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
