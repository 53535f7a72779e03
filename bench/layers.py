"""`lamina bench layers`: what one operation costs under 0 to 4 layers of a tensor subclass, next to its peers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from ..conformance.subject import SubjectError
from .cases import CASES, CIRCUMSTANCES, EAGER, FORWARDS, LARGE_ADD, Case
from .instructions import CountingError, NoCounterError
from .named import NameNotFoundError
from .ours import LOGGING, TRANSPARENT, load_ours
from .peers import HAND_WRITTEN, hand_written, load_peers
from .results import Figure, Results, Share, Slope
from .subjects import PLAIN, Absence, Subject
from .timing import Measurement, Settings, Summary, TooNoisyError, Variant, describe_machine, measure, paired_ratio
from .trials import NOISY, WRONG, Gap, Trial, reason_of
from .users import Users

Progress = Callable[[str], object]
REFUSED = 1  # the exit status where the user's class gives a wrong result
IN_ALL_CIRCUMSTANCES = (PLAIN.name, HAND_WRITTEN, TRANSPARENT, LOGGING)


@dataclass(frozen=True)
class Options:
    """What to measure: operations by name (all if empty), how long, how deep; and a class in the peers' place."""

    ops: tuple[str, ...] = ()
    quick: bool = False
    layers: int = 4
    settings: Settings = field(default_factory=Settings)
    user: Users | None = None

    def timing(self) -> Settings:
        """The settings to use, quick or not."""
        return self.settings.quick() if self.quick else self.settings

    def cases(self) -> list[Case]:
        """The cases named in `ops`, or all; a ValueError for a name that the bench does not know."""
        known = [case.op for case in CASES]
        unknown = [op for op in self.ops if op not in known]
        if unknown:
            raise ValueError(f"no such operation: {', '.join(unknown)}. The bench knows: {', '.join(known)}.")
        return [case for case in CASES if not self.ops or case.op in self.ops]

    def subjects(self) -> tuple[list[Subject], list[Absence]]:
        """Plain, lamina's own, and the peers or a user's class beside the hand-written wrapper; and who is missing."""
        if self.user is not None:
            return [PLAIN, *load_ours(), hand_written(), self.user.subject()], []
        peers, absences = load_peers()
        return [PLAIN, *load_ours(), *peers], absences


def run(options: Options = Options(), progress: Progress = str, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing.

    `begun` is given the results before the first figure is there, for whoever wants to keep those of half a run.
    """
    subjects, absences = options.subjects()
    results = Results(describe_machine(), options.timing(), absences=absences)
    results.subjects = {subject.name: subject.origin for subject in subjects}
    results.asked_for = [subject.name for subject in subjects if subject.asked_for]
    begun(results)
    for case in options.cases():
        progress(case.op)
        add_case(results, case, list(trials_of(case, subjects, options.layers)))
    if not options.ops:
        for case in FORWARDS:
            progress(case.op)
            add_shares(results, case, subjects)
    return results


def trials_of(case: Case, subjects: Sequence[Subject], layers: int) -> Iterator[Trial]:
    """Plain in all circumstances; each subject at each depth; the main ones at one layer in all circumstances."""
    for subject in subjects:
        if case.op == LARGE_ADD and not (subject.computes and subject.has_values):
            continue  # beside a computation of this size, the time of none says nothing
        lowest = 0 if subject is PLAIN else 1
        for depth in range(lowest, max(lowest, min(layers, subject.max_layers)) + 1):
            yield Trial(case, subject, depth, EAGER)
        if subject.asked_for or subject.name in IN_ALL_CIRCUMSTANCES:
            for circumstance in CIRCUMSTANCES[1:]:
                yield Trial(case, subject, lowest, circumstance)


def time_trials(trials: Iterable[Trial], settings: Settings) -> tuple[dict[str, Trial], Measurement, list[Gap]]:
    """Check every trial, time those that pass together, and name the reason for the others."""
    passed: dict[str, Trial] = {}
    variants: list[Variant] = []
    gaps: list[Gap] = []
    for trial in trials:
        prepared = trial.prepare()
        if isinstance(prepared, Gap):
            gaps.append(prepared)
        else:
            passed[trial.name] = trial
            variants.append(prepared)
    ratios = [(name, base) for name, trial in passed.items() for base in _bases(trial, passed) if base]
    return passed, measure(variants, settings, ratios), gaps


def add_case(results: Results, case: Case, trials: Sequence[Trial]) -> None:
    """Time one operation's trials and add figures, slopes and gaps."""
    passed, measured, gaps = time_trials(trials, results.settings)
    results.gaps += gaps
    for trial in passed.values():
        try:
            results.figures.append(_figure(trial, passed, measured))
        except TooNoisyError as error:
            results.gaps.append(trial.gap(reason_of(error), NOISY))
    results.slopes += _slopes(case, passed, measured)


def _figure(trial: Trial, passed: dict[str, Trial], measured: Measurement) -> Figure:
    """The figure of one trial; a TooNoisyError where its time or one of its ratios is."""
    to_plain, to_hand = (measured.ratio(trial.name, base) if base else None for base in _bases(trial, passed))
    return Figure(
        f"{trial.case.op} | {trial.name}",
        trial.case.op,
        trial.subject.name,
        trial.layers,
        trial.circumstance.name,
        measured.time(trial.name),
        to_plain,
        to_hand,
        tuple(measured.rounds[trial.name]),
    )


def _bases(trial: Trial, passed: dict[str, Trial]) -> tuple[str | None, str | None]:
    """The names of what a trial is compared with, where that was timed: plain, and hand-written."""
    plain = replace(trial, subject=PLAIN, layers=0).name
    return plain if plain in passed else None, _hand_written_like(trial, passed)


def _hand_written_like(trial: Trial, passed: dict[str, Trial]) -> str | None:
    """The name of the hand-written trial at the same depth and in the same circumstance, if it was timed."""
    names = (
        name
        for name, other in passed.items()
        if other.subject.name == HAND_WRITTEN
        and other.layers == trial.layers
        and other.circumstance == trial.circumstance
    )
    return next(names, None)


def _slopes(case: Case, passed: dict[str, Trial], measured: Measurement) -> list[Slope]:
    """Cost per layer for every subject that was timed at two depths or more, plain being depth 0."""
    depths: dict[str, dict[int, str]] = {}
    for name, trial in passed.items():
        if trial.circumstance == EAGER and trial.subject is not PLAIN:
            depths.setdefault(trial.subject.name, {0: Trial(case, PLAIN, 0, EAGER).name})[trial.layers] = name
    per_round = {subject: measured.slopes(names) for subject, names in depths.items() if len(names) > 2}
    floor = per_round.get(HAND_WRITTEN)
    found = []
    for subject, slopes in per_round.items():
        ratio = paired_ratio(slopes, floor) if floor else None
        found.append(Slope(case.op, subject, tuple(depths[subject]), Summary.of(slopes), ratio))
    return found


def add_shares(results: Results, case: Case, subjects: Sequence[Subject]) -> None:
    """The part of a forward's time that one layer's dispatch takes: (wrapped - plain) / wrapped."""
    computing = [subject for subject in subjects if subject.computes and subject.has_values]
    trials = [Trial(case, subject, int(subject is not PLAIN), EAGER) for subject in computing]
    passed, measured, gaps = time_trials(trials, results.settings)
    results.gaps += gaps
    plain = measured.rounds[trials[0].name]
    for name, trial in passed.items():
        shares = [1 - base / mine for mine, base in zip(measured.rounds[name], plain, strict=True)]
        try:
            results.shares.append(Share(case.op, trial.subject.name, measured.time(name), Summary.of(shares)))
        except TooNoisyError as error:
            results.gaps.append(trial.gap(reason_of(error), NOISY))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: measure, print tables or JSON, write the plot. Returns the exit status."""
    from .report import parse

    chosen = parse(arguments)
    if chosen.plot and not chosen.plot.resolve().parent.is_dir():
        print(f"--plot {chosen.plot}: there is no folder {chosen.plot.resolve().parent}", file=sys.stderr)
        return 2  # before minutes are spent
    settings = Settings(clock=time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns)
    user = Users(chosen.cls, chosen.make, chosen.rtol) if chosen.cls else None
    options = Options(tuple(chosen.op), chosen.quick, chosen.layers, settings, user)
    try:
        if chosen.instructions:
            return _instructions(options, chosen)
        return _anatomy(options, chosen) if chosen.anatomy else _layers(options, chosen)
    except (NameNotFoundError, SubjectError, NoCounterError, CountingError) as error:
        print(error, file=sys.stderr)
        return 2


def _layers(options: Options, chosen: argparse.Namespace) -> int:
    from . import plot, report

    return _shown(run(options, print_step), chosen, report, plot)


def _instructions(options: Options, chosen: argparse.Namespace) -> int:
    from .counted_layers import measured, show

    results = measured(options, print_step)
    show(results, as_json=chosen.json)
    return REFUSED if any(gap.kind == WRONG for gap in results.gaps) else 0


def _anatomy(options: Options, chosen: argparse.Namespace) -> int:
    from .anatomy import plot, report
    from .anatomy.bench import measured

    return _shown(measured(options, print_step), chosen, report, plot)


def _shown(results: Any, chosen: argparse.Namespace, report: ModuleType, plot: ModuleType) -> int:
    """As tables or as JSON, by the module that knows the results, and as its picture. Returns the exit status."""
    if chosen.json:
        print(report.as_json(results))
    else:
        report.print_results(results)
    if chosen.plot:
        plot.write_plot(results, chosen.plot)
    return REFUSED if results.refused() else 0


def print_step(step: str) -> None:
    """Say on stderr what is being measured, so that stdout holds the tables or the JSON alone."""
    print(f"measuring {step}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
