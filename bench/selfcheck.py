"""`lamina bench selfcheck`: does the instrument see a difference where there is one, and none where there is none?

The same work is timed against itself (A/A): no difference may be found. Then one in twenty-one parts is added: the
slowdown of 5 % has to be found. Both for a call of some microseconds, which is dispatch, and for one of some hundred,
which is arithmetic and memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from .budget import Budget
from .tables import Table, budgets_table, print_tables
from .timing import Measurement, Settings, Stop, Summary, Variant, describe_machine, measure
from .verdict import CONFIDENCE, Verdict

SCHEMA = 1
PARTS = 20
TIMES = 20
MUST_FIND = 0.9  # of the planted ones
BASE, OTHER = "base", "other"
SAME, PLANTED = "A/A", "planted 5 %"
SETTINGS = Settings(loop_ns=400_000, warmup_ns=400_000, fewest=40, target=0.03, confidence=CONFIDENCE, seconds=4.0)
Progress = Callable[[str], object]


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


@dataclass
class Results:
    """All comparisons, and whether they were ended by the user."""

    settings: Settings
    times: int
    figures: list[Figure] = field(default_factory=list)
    interrupted: bool = False

    def of(self, workload: str, kind: str) -> list[Figure]:
        """The comparisons of one kind."""
        return [each for each in self.figures if (each.workload, each.kind) == (workload, kind)]

    def budgets(self) -> Iterator[Budget]:
        """How many verdicts are right, and how many have to be."""
        for workload in WORKLOADS:
            for kind, least in ((SAME, self.times), (PLANTED, round(MUST_FIND * self.times))):
                right = sum(each.right for each in self.of(workload.name, kind))
                text = f"{workload.name}, {kind}: right verdicts of {self.times}"
                yield Budget(text, Summary.of([right]), at_least=least)

    @property
    def passed(self) -> bool:
        """Whether the instrument is fit for use."""
        return all(budget.met for budget in self.budgets())

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dictionaries only. Times are nanoseconds."""
        return {
            "schema": SCHEMA,
            "bench": "selfcheck",
            "machine": describe_machine(),
            "settings": self.settings.to_json(),
            "interrupted": self.interrupted,
            "figures": [{**asdict(each), "verdict": each.verdict.value} for each in self.figures],
            "budgets": [budget.to_json() for budget in self.budgets()],
            "gaps": [],
        }

    def table(self) -> Table:
        """One row for each workload and kind."""
        rows = [self._row(workload.name, kind) for workload in WORKLOADS for kind in (SAME, PLANTED)]
        return Table("the instrument", ["", "µs a call", "ratio, least to most", "rounds", "verdicts"], rows)

    def _row(self, workload: str, kind: str) -> list[str]:
        found = self.of(workload, kind)
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


def measured(settings: Settings = SETTINGS, times: int = TIMES, progress: Progress = str) -> Results:
    """Compare so many times for each workload and kind, in turns. An interrupt leaves what was found up to then."""
    results = Results(settings, times)
    try:
        for number in range(times):
            for workload in WORKLOADS:
                for kind in (SAME, PLANTED):
                    progress(f"{number + 1} of {times}: {workload.name}, {kind}")
                    results.figures.append(compare(workload, kind, number, settings))
    except KeyboardInterrupt:
        results.interrupted = True
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 1 where too few verdicts are right."""
    parser = argparse.ArgumentParser(prog="lamina bench selfcheck", description=__doc__)
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--times", type=int, default=TIMES, metavar="N", help=f"comparisons of each kind ({TIMES})")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead; nanoseconds")
    chosen = parser.parse_args(arguments)
    if chosen.times < 1:
        parser.error(f"--times {chosen.times}: write 1 or more")
    results = measured(
        chosen_settings(cpu_time=chosen.cpu_time), chosen.times, lambda doing: print(doing, file=sys.stderr)
    )
    if chosen.json:
        print(json.dumps(results.to_json(), indent=1))
    else:
        print_tables([results.table(), budgets_table(results.budgets())])
    return 0 if results.passed else 1


def chosen_settings(*, cpu_time: bool) -> Settings:
    """How long to measure, and by which clock."""
    return replace(SETTINGS, clock=time.thread_time_ns) if cpu_time else SETTINGS


if __name__ == "__main__":
    raise SystemExit(main())
