"""Runs the bench: for each problem every subject is built and checked, then all that passed are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import torch

from ..compiler import EAGER, empty_cache
from ..subjects import Absence
from ..timing import Measurement, TooNoisyError, describe_machine, measure, quiet_machine
from ..trials import Gap, reason_of
from .accuracy import References
from .options import Options, Progress
from .peers import load_peers, quiet_peers
from .problems import Layer, Problem
from .results import Figure, Results
from .step import FULL_SIZES, WRAPPINGS, Sizes, add_steps
from .subjects import PLAIN, Subject, load_ours, load_plain, weight_bytes
from .trials import Built, Passed, Trial


def load_subjects(layer: Layer) -> tuple[list[Subject], list[Absence]]:
    """All subjects for one layer, plain first, and the reason for each that is missing."""
    peers, absences = load_peers()
    return [*load_plain(layer.torch_dtype), *peers, *load_ours()], absences


def work(options: Options) -> int:
    """How many figures a run is to find."""
    figures = sum(
        len(options.rows) * (1 if subject.is_floor else len(options.modes))
        for layer in options.layers()
        for subject in load_subjects(layer)[0]
    )
    return figures + options.step * len(WRAPPINGS) * len(options.modes)


def run(
    options: Options, progress: Progress, sizes: Sizes = FULL_SIZES, begun: Callable[[Results], object] = id
) -> Results:
    """Measure, and return all figures with the reasons for those that are missing.

    `begun` is given the results before the first figure is there, for whoever wants to keep those of half a run.
    """
    results = Results(describe_machine(), options.settings, options.modes, options.not_compiled)
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
        progress(f"{problem.name}: {trial.name}", 1)
        prepared = trial.prepare(activations, references)
        if isinstance(prepared, Gap):
            results.gaps.append(prepared)
        else:
            passed[trial.name] = (trial, prepared)
    progress(f"{problem.name}: timing", 0)
    variants = [each.variant for _, each in passed.values()]
    names = {variant.name for variant in variants}
    ratios = [(plain, name) for name, (trial, _) in passed.items() if (plain := _plain_like(trial)) in names]
    measured = measure(variants, options.timing, ratios)
    for trial, each in passed.values():
        try:
            results.figures.append(_figure(trial, each, measured))
        except TooNoisyError as error:
            results.gaps.append(trial.gap(reason_of(error)))


def trials_of(problem: Problem, built: Iterable[Built], modes: Iterable[str]) -> list[Trial]:
    """Every subject in every mode; floors are not compiled."""
    return [
        Trial(each, problem, mode) for each in built for mode in modes if mode == EAGER or not each.subject.is_floor
    ]


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
