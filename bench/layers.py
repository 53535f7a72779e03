"""`lamina bench layers`: what one operation costs under 0 to 4 layers of a tensor subclass, next to its peers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ..conformance.subject import SubjectError
from .budgets import budgets
from .cases import CASES, CIRCUMSTANCES, EAGER, FORWARDS, LARGE_ADD, Case
from .command import BAD_INPUT, Command, bench_parser, clocked
from .instructions import CountingError, NoCounterError
from .named import NameNotFoundError
from .ours import LOGGING, TRANSPARENT, load_ours
from .peers import HAND_WRITTEN, hand_written, load_peers
from .plot import picture
from .progress import Progress, silent
from .report import LEGEND, tables
from .results import SLOPE, Figure, Results, Share, Slope
from .subjects import MAX_LAYERS, PLAIN, Absence, Subject
from .summary import paired_ratios
from .timing import Measurement, Settings, Summary, Variant, describe_machine, measure_into
from .trials import Gap, Trial
from .users import Users

OPS = [case.op for case in CASES]
SECONDS_BESIDE = 3.0
IN_ALL_CIRCUMSTANCES = (PLAIN.name, HAND_WRITTEN, TRANSPARENT, LOGGING)


@dataclass(frozen=True)
class Options:
    """What to measure: operations by name (all if empty), how long, how deep; and a class in the peers' place."""

    ops: tuple[str, ...] = ()
    layers: int = MAX_LAYERS
    settings: Settings = field(default_factory=Settings)
    user: Users | None = None

    def cases(self) -> list[Case]:
        """The cases named in `ops`, or all; a ValueError for a name that the bench does not know."""
        unknown = [op for op in self.ops if op not in OPS]
        if unknown:
            raise ValueError(f"no such operation: {', '.join(unknown)}. The bench knows: {', '.join(OPS)}.")
        return [case for case in CASES if not self.ops or case.op in self.ops]

    def subjects(self) -> tuple[list[Subject], list[Absence]]:
        """Plain, lamina's own, and the peers or a user's class beside the hand-written wrapper; and who is missing."""
        if self.user is not None:
            return [PLAIN, *load_ours(), hand_written(), self.user.subject()], []
        peers, absences = load_peers()
        return [PLAIN, *load_ours(), *peers], absences

    def forwards(self) -> Sequence[Case]:
        """The forwards to time: none where single operations were asked for."""
        return () if self.ops else FORWARDS

    def seconds_each(self) -> float:
        """How long one case takes: its rounds, and some seconds to check all subjects and to find how many calls fill a
        loop."""
        return self.settings.seconds + SECONDS_BESIDE


def work(options: Options) -> float:
    """How many seconds a run takes."""
    return options.seconds_each() * (len(options.cases()) + len(options.forwards()))


def run(options: Options = Options(), progress: Progress = silent, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing."""
    subjects, absences = options.subjects()
    results = Results(describe_machine(), options.settings, absences=absences)
    results.note(subjects)
    begun(results)
    for case in options.cases():
        progress(case.op, options.seconds_each())
        add_case(results, case, list(trials_of(case, subjects, options.layers)))
    for case in options.forwards():
        progress(case.op, options.seconds_each())
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


def checked(trials: Iterable[Trial], gaps: list[Gap]) -> dict[str, tuple[Trial, Variant]]:
    """Those that pass their check, by name; the reasons for the others are added to the gaps."""
    passed: dict[str, tuple[Trial, Variant]] = {}
    for trial in trials:
        prepared = trial.prepare()
        if isinstance(prepared, Gap):
            gaps.append(prepared)
        else:
            passed[trial.name] = trial, prepared
    return passed


def add_case(results: Results, case: Case, trials: Sequence[Trial]) -> None:
    """Check one operation's trials, time those that pass together, and add figures, slopes and gaps."""
    both = checked(trials, results.gaps)
    passed = {name: trial for name, (trial, _) in both.items()}
    pairs = [(name, base) for name, trial in passed.items() for base in _bases(trial, passed) if base]

    def add(measured: Measurement) -> None:
        for trial in passed.values():
            results.add(results.figures, partial(_figure, trial, passed, measured), trial.gap)
        _add_slopes(results, case, passed, measured)

    measure_into(add, [variant for _, variant in both.values()], results.settings, pairs)


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


def _add_slopes(results: Results, case: Case, passed: dict[str, Trial], measured: Measurement) -> None:
    """Cost per layer for every subject that was timed at two depths or more, plain being depth 0."""
    depths: dict[str, dict[int, str]] = {}
    for name, trial in passed.items():
        if trial.circumstance == EAGER and trial.subject is not PLAIN:
            depths.setdefault(trial.subject.name, {0: Trial(case, PLAIN, 0, EAGER).name})[trial.layers] = name
    per_round = {subject: measured.slopes(names) for subject, names in depths.items() if len(names) > 2}
    floor = per_round.get(HAND_WRITTEN)
    for subject, slopes in per_round.items():
        gap = partial(Gap, f"{case.op}, slope", subject, max(depths[subject]), SLOPE)
        results.add(
            results.slopes, partial(_slope, case, subject, tuple(depths[subject]), slopes, floor, measured), gap
        )


def _slope(
    case: Case,
    subject: str,
    layers: tuple[int, ...],
    sample: Sequence[float],
    floor: Sequence[float] | None,
    measured: Measurement,
) -> Slope:
    what = f"the slope of {case.op} along layers of {subject}"
    ratio = measured.given(f"{what} / {HAND_WRITTEN}", paired_ratios(sample, floor)) if floor else None
    return Slope(case.op, subject, layers, measured.given(what, sample), ratio)


def add_shares(results: Results, case: Case, subjects: Sequence[Subject]) -> None:
    """The part of a forward's time that one layer's dispatch takes: (wrapped - plain) / wrapped."""
    computing = [subject for subject in subjects if subject.computes and subject.has_values]
    passed = checked([Trial(case, subject, int(subject is not PLAIN), EAGER) for subject in computing], results.gaps)
    plain = Trial(case, PLAIN, 0, EAGER).name

    def add(measured: Measurement) -> None:
        for name, (trial, _) in passed.items():
            shares = Summary.of([1 - ratio for ratio in measured.ratios(plain, name)])
            found: list[Summary] = []
            results.add(found, partial(measured.time, name), trial.gap)
            results.shares += [Share(case.op, trial.subject.name, each, shares) for each in found]

    measure_into(add, [variant for _, variant in passed.values()], results.settings, [(plain, name) for name in passed])


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench layers`."""
    made = bench_parser("layers", "Cost per operation and subclass layer.")
    made.add_argument("--op", action="append", choices=OPS, help="what to measure; repeatable; default: all")
    made.add_argument(
        "--layers", type=int, default=MAX_LAYERS, choices=range(1, MAX_LAYERS + 1), help="how deep to nest"
    )
    made.add_argument(
        "--class", dest="cls", metavar="MODULE:CLASS", help="your tensor subclass, beside plain, hand-written and ours"
    )
    made.add_argument("--make", metavar="MODULE:FUNCTION", help="builds one of a plain tensor; default: from_plain")
    made.add_argument("--rtol", type=float, help="how far off its results may be, relative to the largest value")
    made.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions instead: a minute an operator under callgrind",
    )
    made.add_argument("--anatomy", action="store_true", help="where the time of one layer goes, part by part")
    return made


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for."""
    settings = Settings().quick() if chosen.quick else Settings()
    user = Users(chosen.cls, chosen.make, chosen.rtol) if chosen.cls else None
    return Options(tuple(chosen.op or ()), chosen.layers, clocked(settings, chosen), user)


COMMAND = Command(parser, chosen_options, work, run, LEGEND, tables, budgets, picture=picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line, in its three ways. Returns the exit status."""
    from .anatomy.bench import COMMAND as ANATOMY
    from .counted_layers import command as count

    chosen = parser().parse_args(arguments)
    if (chosen.make or chosen.rtol is not None) and not chosen.cls:
        parser().error("--make and --rtol are about a class: give --class, too")
    try:
        if chosen.instructions:
            return count(chosen_options(chosen), as_json=chosen.json)
        return (ANATOMY if chosen.anatomy else COMMAND).main(arguments)
    except (NameNotFoundError, SubjectError, NoCounterError, CountingError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    raise SystemExit(main())
