"""The instrument: times variants against each other in one process, and reports medians, quartiles and paired ratios.

A single timing on a busy machine lies. Here all variants run in every round, in a new random order, so that whatever
the machine does meets all of them; ratios are formed inside a round and only then summarized. One thread, no garbage
collection while the clock runs; both are put back afterwards. It goes on until each figure that was asked for has a
narrow interval, or until time is out. It stops for the interval's width, never for where the interval lies: looking
again and again until a difference shows would find one at last.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from .cuda_clock import CudaStopwatch, cuda_device
from .machine import describe_machine, quiet_machine
from .measurement import InterruptedMeasurement, Measurement, Stop, TooNoisyError
from .stopwatch import Clock, Variant, host_stopwatch
from .summary import REPORTED, Summary, least_squares_slope, paired_ratio

__all__ = [
    "Clock",
    "InterruptedMeasurement",
    "Measurement",
    "Settings",
    "Stop",
    "Summary",
    "TooNoisyError",
    "Variant",
    "describe_machine",
    "least_squares_slope",
    "measure",
    "measure_into",
    "paired_ratio",
    "quiet_machine",
]

NANOSECONDS = 1_000_000_000
CALIBRATIONS, LONG_NS = 5, 50_000_000
LOOK_AGAIN = 1.1  # at so many times the rounds of the last look: a look costs time, too
PADDINGS, PADDING_BYTES = 4, 1 << 16


@dataclass(frozen=True)
class Settings:
    """How long to measure: rounds that run each variant for about `loop_ns` nanoseconds, or for one call.

    Rounds go on until the interval of each figure asked for spans less than `target` of its median, or until `seconds`
    of wall time or `rounds` are over; there are `fewest` at least. That interval is the one that holds with
    `confidence`. A figure whose 95 % interval in the end spans more than `refuse_above` is refused (None: none is).

    Loops are short: on a busy machine few of them are interrupted then, and the median of many passes over those.

    The clock is wall time; `time.thread_time_ns` leaves out what other processes on the machine take. Variants with
    CUDA tensors are timed by events on the GPU instead. A variant whose call takes less than `lead_below_ns` is called
    once before each loop, untimed: its data is then in the caches again, which those before it may have filled with
    theirs. Arguments that a variant can renew are renewed every `renew_every` rounds.

    A bench that finds a time or a ratio refused measures all of its variants again, in `attempts` at most, and keeps
    the rounds of the attempt in which the fewest were refused: a machine that changed its speed in the middle is
    steadier in another minute. Widths alone decide it, never where a figure lies.
    """

    rounds: int = 1000
    loop_ns: int = 500_000
    warmup_ns: int = 2_000_000
    seed: int = 0
    clock: Clock = time.perf_counter_ns
    lead_below_ns: int = 0
    fewest: int = 20
    target: float = 0.02
    confidence: float = REPORTED
    seconds: float = 5.0
    refuse_above: float | None = 0.25
    renew_every: int = 4
    attempts: int = 2

    def quick(self) -> Settings:
        """The same for a quick look: rougher figures."""
        return replace(self, loop_ns=100_000, warmup_ns=200_000, target=0.05, seconds=2.0, attempts=1)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; the clock by its name."""
        return {**asdict(self), "clock": self.clock.__name__}


def measure(
    variants: Sequence[Variant], settings: Settings = Settings(), ratios: Sequence[tuple[str, str]] = ()
) -> Measurement:
    """Time all variants, alternating in random order, until the ratios of these pairs are narrow: variant, baseline.

    Without pairs, until the times are. Names must differ: a result is found by its name. An interrupt by the user
    becomes an InterruptedMeasurement, a KeyboardInterrupt that carries the rounds measured up to then.
    """
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise ValueError(f"variant names must differ, got {sorted(name for name in names if names.count(name) > 1)}.")
    if unknown := {name for pair in ratios for name in pair} - set(names):
        raise ValueError(f"no such variant to form a ratio with: {sorted(unknown)}. There are: {names}.")
    result = Measurement({name: [] for name in names}, refuse_above=settings.refuse_above)
    if not variants:
        return result
    try:
        with quiet_machine():
            result.stopped = _Run(variants, settings, result).until_narrow(ratios)
    except KeyboardInterrupt as error:
        raise result.interrupted() from error
    return result


def measure_into(
    add: Callable[[Measurement], object],
    variants: Sequence[Variant],
    settings: Settings,
    ratios: Sequence[tuple[str, str]] = (),
) -> None:
    """Measure, again where figures are refused, and give to `add` what was measured: after an interrupt, too, which
    then goes on."""
    best: Measurement | None = None
    try:
        best = measure(variants, settings, ratios)
        for _ in range(1, settings.attempts):
            if not best.refused(ratios):
                break
            best = min(best, measure(variants, settings, ratios), key=lambda each: each.refused(ratios))
    except InterruptedMeasurement as error:
        measured = best or error.measurement
        if measured.whole_rounds():
            add(measured)
        raise
    add(best)


class _Run:
    """The loops of one measurement; adds to the rounds of `result`."""

    def __init__(self, variants: Sequence[Variant], settings: Settings, result: Measurement) -> None:
        """Warm up, and find how many calls of each fill a loop."""
        self.variants, self.settings, self.result = list(variants), settings, result
        self.random = random.Random(settings.seed)
        device = cuda_device(variants)
        self.stopwatch = CudaStopwatch(device) if device else host_stopwatch(settings.clock)
        for variant in variants:
            self._warm_up(variant)
        # Only once all are warm: a loop sized while cold would be shorter than the others', and cost more.
        self.costs = {variant.name: self._cost_of_a_call(variant) for variant in variants}
        result.calls = {name: max(1, round(settings.loop_ns / cost)) for name, cost in self.costs.items()}

    def until_narrow(self, ratios: Sequence[tuple[str, str]]) -> Stop:
        """Run rounds; return why they ended."""
        settings = self.settings
        deadline = time.monotonic_ns() + settings.seconds * NANOSECONDS
        look = fewest = min(settings.fewest, settings.rounds)
        for done in range(1, settings.rounds + 1):
            self._round(number=done - 1)
            if done >= look:
                if self.result.widest(ratios, settings.confidence) <= settings.target:
                    return Stop.NARROW
                look = int(done * LOOK_AGAIN) + 1
            if done >= fewest and time.monotonic_ns() >= deadline:
                return Stop.TIME
        return Stop.ROUNDS

    def _round(self, number: int) -> None:
        """Time each variant once, in a new order."""
        if number and number % self.settings.renew_every == 0:
            self._renew()
        for variant in self.random.sample(self.variants, len(self.variants)):
            calls = self.result.calls[variant.name]
            if self.costs[variant.name] < self.settings.lead_below_ns:
                self.stopwatch(variant, 1)
            self.result.rounds[variant.name].append(self.stopwatch(variant, calls) / calls)

    def _renew(self) -> None:
        """Build the arguments again, beside paddings of random size, so that they lie elsewhere; call each once."""
        for place in self.random.sample(range(len(self.variants)), len(self.variants)):
            if renew := self.variants[place].renew:
                sizes = [self.random.randrange(PADDING_BYTES) for _ in range(self.random.randrange(PADDINGS))]
                paddings = [torch.empty(size, dtype=torch.uint8) for size in sizes]
                self.variants[place] = replace(self.variants[place], args=renew())
                del paddings
                self.stopwatch(self.variants[place], 1)

    def _warm_up(self, variant: Variant) -> None:
        """Double the calls until one loop takes so long."""
        calls = 1
        while self.stopwatch(variant, calls) < self.settings.warmup_ns:
            calls *= 2

    def _cost_of_a_call(self, variant: Variant) -> float:
        """Nanoseconds, over calls that fill half a loop.

        A loop that was interrupted would make all loops of this variant short, and what a loop costs once would then
        weigh more on it than on the others. So the quickest of a few counts, unless a single call is long anyway.
        """
        calls = 1
        while True:
            elapsed = self.stopwatch(variant, calls)
            if elapsed < LONG_NS:
                elapsed = min(elapsed, *(self.stopwatch(variant, calls) for _ in range(CALIBRATIONS - 1)))
            if elapsed >= self.settings.loop_ns // 2:
                return max(1, elapsed) / calls
            calls *= 2
