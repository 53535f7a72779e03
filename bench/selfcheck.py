"""`lamina bench selfcheck`: does the instrument see a difference where there is one, and none where there is none?

The same work is timed against itself (A/A): no difference may be found. Then one in twenty-one parts is added: the
slowdown of 5 % has to be found. Both for a call of some microseconds, which is dispatch, and for one of some hundred,
which is arithmetic and memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import Any, ClassVar

import torch
from torch import Tensor

from .budget import Budget
from .command import Command, bench_parser, clocked, positive
from .progress import Progress
from .record import Record
from .tables import Table
from .timing import Measurement, Settings, Stop, Summary, Variant, describe_machine, measure
from .verdict import CONFIDENCE, Verdict

PARTS = 20
TIMES, QUICK = 20, 5
MUST_FIND = 0.9  # of the planted ones
BASE, OTHER = "base", "other"
SAME, PLANTED = "A/A", "planted 5 %"
SETTINGS = Settings(loop_ns=400_000, warmup_ns=400_000, fewest=40, target=0.03, confidence=CONFIDENCE, seconds=4.0)
SECONDS_EACH = 0.8


@dataclass(frozen=True)
class Workload:
    """What one part of a call does, and on how many numbers."""

    name: str
    part: Callable[[Tensor], object]
    numbers: int

    def variant(self, name: str, parts: int) -> Variant:
        """So many parts a call; its tensor is built anew every few rounds."""

        def work(tensor: Tensor) -> None:
            part = self.part
            for _ in repeat(None, parts):
                part(tensor)

        def renew() -> tuple[Tensor]:
            return (torch.ones(self.numbers),)

        return Variant(name, work, renew(), renew=renew)


WORKLOADS = (
    Workload("small", Tensor.detach, 8),
    Workload("large", torch.neg, 1 << 16),
)


@dataclass(frozen=True)
class Figure:
    """One comparison: nanoseconds of the second variant, the ratio to the first, and what was made of it."""

    name: str
    workload: str
    kind: str
    verdict: Verdict
    stopped: Stop | None
    time_ns: Summary
    ratio: Summary
    rounds_ns: tuple[float, ...] = field(repr=False)
    base_rounds_ns: tuple[float, ...] = field(repr=False)

    @property
    def right(self) -> bool:
        """Whether the verdict is what it must be."""
        return self.verdict is Verdict.SLOWER if self.kind == PLANTED else not self.verdict.differs


@dataclass(frozen=True)
class Options:
    """How long to measure, and how many comparisons of each kind to make."""

    settings: Settings = SETTINGS
    times: int = TIMES

    @property
    def comparisons(self) -> int:
        """Of all kinds."""
        return 2 * self.times * len(WORKLOADS)


@dataclass
class Results(Record):
    """All comparisons, and how many of each kind were to be made."""

    bench: ClassVar[str] = "selfcheck"

    figures: list[Figure] = field(default_factory=list)
    times: int = TIMES

    def of(self, workload: str, kind: str) -> list[Figure]:
        """The comparisons of one kind."""
        return [each for each in self.figures if (each.workload, each.kind) == (workload, kind)]

    @property
    def failed(self) -> bool:
        """Whether the instrument is unfit for use."""
        return not all(budget.met for budget in budgets(self))

    def to_json(self) -> dict[str, Any]:
        """The verdicts as words."""
        return {
            **super().to_json(),
            "figures": [{**asdict(each), "verdict": each.verdict.value} for each in self.figures],
        }


def budgets(results: Results) -> Iterator[Budget]:
    """How many verdicts are right, and how many have to be."""
    for workload in WORKLOADS:
        for kind, least in ((SAME, results.times), (PLANTED, round(MUST_FIND * results.times))):
            right = sum(each.right for each in results.of(workload.name, kind))
            text = f"{workload.name}, {kind}: right verdicts of {results.times}"
            yield Budget(text, Summary.of([right]), at_least=least)


def tables(results: Results) -> list[Table]:
    """One row for each workload and kind."""
    rows = [_row(results, workload.name, kind) for workload in WORKLOADS for kind in (SAME, PLANTED)]
    return [Table("the instrument", ["", "µs a call", "ratio, least to most", "rounds", "verdicts"], rows)]


def _row(results: Results, workload: str, kind: str) -> list[str]:
    found = results.of(workload, kind)
    if not found:
        return [f"{workload}, {kind}", "", "", "", "not measured"]
    ratios = [each.ratio.median for each in found]
    verdicts = [each.verdict for each in found]
    counts = {each: verdicts.count(each) for each in Verdict if each in verdicts}
    return [
        f"{workload}, {kind}",
        f"{Summary.of([each.time_ns.median for each in found]).median / 1e3:.2f}",
        f"{min(ratios):.4f} to {max(ratios):.4f}",
        str(max(len(each.rounds_ns) for each in found)),
        ", ".join(f"{count} {each.value}" for each, count in counts.items()),
    ]


def work(options: Options) -> float:
    """How many seconds a run takes."""
    return SECONDS_EACH * options.comparisons


def run(options: Options, progress: Progress, begun: Callable[[Results], object] = id) -> Results:
    """Compare so many times for each workload and kind, in turns."""
    results = Results(describe_machine(), options.settings, times=options.times)
    begun(results)
    for number in range(options.times):
        for workload in WORKLOADS:
            for kind in (SAME, PLANTED):
                progress(f"{number + 1} of {options.times}: {workload.name}, {kind}", SECONDS_EACH)
                results.figures.append(compare(workload, kind, number, options.settings))
    return results


def compare(workload: Workload, kind: str, number: int, settings: Settings) -> Figure:
    """Time both variants, and judge."""
    parts = PARTS + (kind == PLANTED)
    variants = [workload.variant(BASE, PARTS), workload.variant(OTHER, parts)]
    found: Measurement = measure(variants, settings, [(OTHER, BASE)])
    return Figure(
        name=f"{workload.name} | {kind} | {number}",
        workload=workload.name,
        kind=kind,
        verdict=found.verdict(OTHER, BASE),
        stopped=found.stopped,
        # What is too noisy to be given is judged all the same: as unclear.
        time_ns=Summary.of(found.rounds[OTHER]),
        ratio=Summary.of(found.ratios(OTHER, BASE)),
        rounds_ns=tuple(found.rounds[OTHER]),
        base_rounds_ns=tuple(found.rounds[BASE]),
    )


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench selfcheck`."""
    made = bench_parser("selfcheck", __doc__ or "", plot=False)
    made.add_argument("--times", type=positive, metavar="N", help=f"comparisons of each kind ({TIMES}; quick: {QUICK})")
    return made


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for."""
    return Options(clocked(SETTINGS, chosen), chosen.times or (QUICK if chosen.quick else TIMES))


LEGEND = "A/A: no difference may be found; planted: the slowdown has to be. Intervals of 99.9 %"
COMMAND = Command(parser, chosen_options, work, run, LEGEND, tables, budgets)
main = COMMAND.main

if __name__ == "__main__":
    raise SystemExit(main())
