"""Runs the bench: for each problem every subject is built and checked, then all that passed are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial

import torch

from ..compiler import EAGER, empty_cache
from ..progress import Progress
from ..subjects import Absence
from ..timing import Measurement, Settings, describe_machine, measure_into, quiet_machine
from ..trials import Gap
from .accuracy import References
from .options import Options
from .peers import load_peers, quiet_peers
from .problems import Layer, Problem
from .results import Figure, Results
from .step import FULL_SIZES, Sizes, add_steps, seconds_of_steps
from .subjects import PLAIN, Subject, load_ours, load_plain, weight_bytes
from .trials import Built, Passed, Trial

CALIBRATING_S, PRODUCTS_A_SECOND = 2.5, 3e9
"""Of all trials together; of multiplications, all trials of a round in turns."""


def load_subjects(layer: Layer) -> tuple[list[Subject], list[Absence]]:
    """All subjects for one layer, plain first, and the reason for each that is missing."""
    peers, absences = load_peers()
    return [*load_plain(layer.torch_dtype), *peers, *load_ours()], absences


def work(options: Options) -> float:
    """How many seconds a run takes, roughly."""
    problems = [Problem.of(layer, rows) for layer in options.layers() for rows in options.rows]
    seconds = [
        seconds_to_check(subject, mode)
        for problem in problems
        for subject in load_subjects(problem.layer)[0]
        for mode in modes_of(subject, options.modes)
    ]
    return (
        sum(seconds)
        + sum(seconds_to_time(problem, options.timing(problem)) for problem in problems)
        + options.step * seconds_of_steps(options)
    )


def seconds_to_check(subject: Subject, mode: str) -> float:
    """How many seconds a trial takes, to compile it most of all."""
    return 0.1 if mode == EAGER or subject.is_floor else 0.35


def seconds_to_time(problem: Problem, settings: Settings) -> float:
    """How many seconds all trials of one problem take: to find how many calls fill a loop, then the rounds."""
    a_round = problem.rows * problem.outputs * problem.inputs / PRODUCTS_A_SECOND
    return CALIBRATING_S + max(settings.seconds, settings.fewest * a_round)


def modes_of(subject: Subject, modes: Iterable[str]) -> list[str]:
    """Floors are not compiled."""
    return [mode for mode in modes if mode == EAGER or not subject.is_floor]


def run(
    options: Options,
    progress: Progress,
    begun: Callable[[Results], object] = id,
    sizes: Sizes = FULL_SIZES,
) -> Results:
    """Measure, and return all figures with the reasons for those that are missing."""
    results = Results(describe_machine(), options.settings, options.not_compiled, modes=options.modes)
    begun(results)
    with ExitStack() as scopes:
        scopes.enter_context(quiet_peers())
        if not options.not_compiled:
            scopes.enter_context(empty_cache())  # whose key would not know of changed rules
        for layer in options.layers():
            add_layer(results, layer, options, progress)
        if options.step:
            with quiet_machine():
                add_steps(results, options, progress, sizes)
    return results


def add_layer(results: Results, layer: Layer, options: Options, progress: Progress) -> None:
    """All rows of one layer; each subject's weight is built once."""
    subjects, results.absences = load_subjects(layer)
    results.subjects |= {subject.name: subject.origin for subject in subjects}
    built = [Built(subject, layer) for subject in subjects]
    for rows in options.rows:
        # One thread here too: Inductor compiles for as many as there are.
        with quiet_machine():
            add_problem(results, Problem.of(layer, rows), built, options, progress)
        torch.compiler.reset()  # the compiled are timed: their code and guards can go


def add_problem(
    results: Results, problem: Problem, built: Sequence[Built], options: Options, progress: Progress
) -> None:
    """Check every subject in every mode, time those that pass together, and add their figures."""
    activations = problem.activations(problem.rows)
    references = References(activations)
    passed: dict[str, tuple[Trial, Passed]] = {}
    for trial in trials_of(problem, built, options.modes):
        progress(f"{problem.name}: {trial.name}", seconds_to_check(trial.built.subject, trial.mode))
        prepared = trial.prepare(activations, references)
        if isinstance(prepared, Gap):
            results.gaps.append(prepared)
        else:
            passed[trial.name] = (trial, prepared)
    timing = options.timing(problem)
    progress(f"{problem.name}: timing", seconds_to_time(problem, timing))
    variants = [each.variant for _, each in passed.values()]
    names = {variant.name for variant in variants}
    ratios = [(plain, name) for name, (trial, _) in passed.items() if (plain := _plain_like(trial)) in names]

    def add(measured: Measurement) -> None:
        for trial, each in passed.values():
            results.add(results.figures, partial(_figure, trial, each, measured), trial.gap)

    measure_into(add, variants, timing, ratios)


def trials_of(problem: Problem, built: Iterable[Built], modes: Iterable[str]) -> list[Trial]:
    """Every subject in every mode that it has."""
    return [Trial(each, problem, mode) for each in built for mode in modes_of(each.subject, modes)]


def _plain_like(trial: Trial) -> str:
    """The name of the plain product in the same mode."""
    return f"{PLAIN} | {trial.mode}"


def _figure(trial: Trial, passed: Passed, measured: Measurement) -> Figure:
    plain = _plain_like(trial)
    return Figure(
        trial.problem,
        trial.built.subject.name,
        trial.mode,
        measured.time(trial.name),
        measured.ratio(plain, trial.name) if plain in measured.rounds else None,
        passed.decibels,
        weight_bytes(trial.built.module),
        tuple(measured.rounds[trial.name]),
    )
