"""`lamina bench layers`: what one operation costs under 0 to 4 layers of a tensor subclass, next to its peers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from .cases import CASES, CIRCUMSTANCES, EAGER, FORWARDS, LARGE_ADD, Case
from .ours import LOGGING, TRANSPARENT, load_ours
from .peers import HAND_WRITTEN, load_peers
from .results import Figure, Results, Share, Slope
from .subjects import PLAIN, Subject
from .timing import Measurement, Settings, Summary, Variant, describe_machine, measure, paired_ratio
from .trials import Gap, Trial

Progress = Callable[[str], object]
IN_ALL_CIRCUMSTANCES = (PLAIN.name, HAND_WRITTEN, TRANSPARENT, LOGGING)


@dataclass(frozen=True)
class Options:
    """What to measure: operations by name (all if empty), how long, and how deep."""

    ops: tuple[str, ...] = ()
    quick: bool = False
    layers: int = 4
    settings: Settings = field(default_factory=Settings)

    def timing(self) -> Settings:
        """The settings to use, quick or not."""
        return replace(self.settings, rounds=15, loop_ns=500_000, warmup_ns=500_000) if self.quick else self.settings

    def cases(self) -> list[Case]:
        """The cases named in `ops`, or all; a ValueError for a name that the bench does not know."""
        known = [case.op for case in CASES]
        unknown = [op for op in self.ops if op not in known]
        if unknown:
            raise ValueError(f"no such operation: {', '.join(unknown)}. The bench knows: {', '.join(known)}.")
        return [case for case in CASES if not self.ops or case.op in self.ops]


def run(options: Options = Options(), progress: Progress = str, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing.

    `begun` is given the results before the first figure is there, for whoever wants to keep those of half a run.
    """
    peers, absences = load_peers()
    subjects = [*load_ours(), *peers]
    results = Results(describe_machine(), options.timing(), absences=absences)
    results.subjects = {subject.name: subject.origin for subject in [PLAIN, *subjects]}
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
    for subject in (PLAIN, *subjects):
        if case.op == LARGE_ADD and not subject.computes:
            continue  # beside a computation of this size, the time of none says nothing
        lowest = 0 if subject is PLAIN else 1
        for depth in range(lowest, max(lowest, min(layers, subject.max_layers)) + 1):
            yield Trial(case, subject, depth, EAGER)
        if subject.name in IN_ALL_CIRCUMSTANCES:
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
    return passed, measure(variants, settings), gaps


def add_case(results: Results, case: Case, trials: Sequence[Trial]) -> None:
    """Time one operation's trials and add figures, slopes and gaps."""
    passed, measured, gaps = time_trials(trials, results.settings)
    results.gaps += gaps
    for name, trial in passed.items():
        plain = replace(trial, subject=PLAIN, layers=0).name
        hand = _hand_written_like(trial, passed)
        results.figures.append(
            Figure(
                case.op,
                trial.subject.name,
                trial.layers,
                trial.circumstance.name,
                measured.time(name),
                measured.ratio(name, plain) if plain in passed else None,
                measured.ratio(name, hand) if hand else None,
                tuple(measured.rounds[name]),
            )
        )
    results.slopes += _slopes(case, passed, measured)


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
    computing = [subject for subject in subjects if subject.computes]
    trials = [Trial(case, PLAIN, 0, EAGER), *(Trial(case, subject, 1, EAGER) for subject in computing)]
    passed, measured, gaps = time_trials(trials, results.settings)
    results.gaps += gaps
    plain = measured.rounds[trials[0].name]
    for name, trial in passed.items():
        shares = [1 - base / mine for mine, base in zip(measured.rounds[name], plain, strict=True)]
        results.shares.append(Share(case.op, trial.subject.name, measured.time(name), Summary.of(shares)))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: measure, print tables or JSON, write the plot. Returns the exit status."""
    from .plot import write_plot
    from .report import as_json, parse, print_results

    chosen = parse(arguments)
    if chosen.plot and not chosen.plot.resolve().parent.is_dir():
        print(f"--plot {chosen.plot}: there is no folder {chosen.plot.resolve().parent}", file=sys.stderr)
        return 2  # before minutes are spent
    settings = Settings(clock=time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns)
    results = run(Options(tuple(chosen.op), chosen.quick, chosen.layers, settings), print_step)
    if chosen.json:
        print(as_json(results))
    else:
        print_results(results)
    if chosen.plot:
        write_plot(results, chosen.plot)
    return 0


def print_step(step: str) -> None:
    """Say on stderr what is being measured, so that stdout holds the tables or the JSON alone."""
    print(f"measuring {step}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
