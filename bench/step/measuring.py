"""Runs the bench: in each group all steps are built and checked, then those that passed are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import lamina

from ..compiler import empty_cache, traced_backward
from ..ours import LOGGING, load_ours
from ..progress import Progress
from ..subjects import PLAIN, Subject
from ..timing import Measurement, Settings, Summary, describe_machine, measure_into, quiet_machine
from ..trials import Gap, kind_of, reason_of
from .conditions import EAGER, MODEL, Group
from .expected import seconds_of_timing, seconds_of_trial
from .growth import add_slopes
from .memory import overhead
from .models import MLP
from .optimizers import SGD
from .options import Options
from .peers import load_peers
from .results import Figure, Results
from .split import PARAMETERS, SplitTrial
from .trial import StepTrial

INT8 = "lamina ScaledInt8Tensor"
SPLIT = Group(MLP, SGD, MODEL, (PARAMETERS,), 0)
Prepared = tuple[StepTrial, int]
"""A checked trial, and the most bytes that its step has alive."""


def load_subjects() -> dict[str, Subject]:
    """What weights are wrapped in, by name; plain first."""
    logging = next(each for each in load_ours() if each.name == LOGGING)
    # It changes values, so its losses are not plain's; that they fall is checked.
    quantize = lamina.ScaledInt8Tensor.quantize
    int8 = Subject(INT8, logging.origin, quantize, dequantized, max_layers=1, weight_only=True, tolerance=1.0)
    return {each.name: each for each in (PLAIN, logging, int8, *load_peers())}


def trials_of(group: Group, parameters: int, subjects: dict[str, Subject]) -> list[tuple[Subject, int]]:
    """What to wrap in, and how deep: plain first."""
    layers = [(subjects[LOGGING], depth) for depth in range(1, group.layers_at(parameters) + 1)]
    int8 = [(subjects[INT8], 1)] if group.quantized_at(parameters) else []
    return [(PLAIN, 0), *layers, *int8]


def dequantized(quantized: Any) -> Tensor:
    """The values of one."""
    plain: Tensor = quantized.to_plain()
    return plain


def work(options: Options) -> float:
    """How many seconds a run takes."""
    subjects = load_subjects()
    seconds = sum(seconds_of_group(group, subjects, options.settings) for group in options.groups())
    return seconds + sum(_split_seconds(options, len(list(_split_trials(options, subjects)))))


def seconds_of_group(group: Group, subjects: dict[str, Subject], settings: Settings) -> float:
    """How many seconds a group takes: all its trials, and to time them."""
    trials = [(count, *trial) for count in group.parameters for trial in trials_of(group, count, subjects)]
    times = 1 if group.mode == EAGER else 2  # the first for the cache
    building = times * sum(_seconds(group, count, subject, layers) for count, subject, layers in trials)
    return building + seconds_of_timing(group, [(count, layers) for count, _, layers in trials], settings)


def _seconds(group: Group, parameters: int, subject: Subject, layers: int) -> float:
    return seconds_of_trial(group, parameters, layers, quantized=subject.weight_only)


def run(options: Options, progress: Progress, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing."""
    subjects = load_subjects()
    results = Results(describe_machine(), options.settings, options.not_compiled)
    results.note([*subjects.values()])
    begun(results)
    with _scopes(options):
        # First, so that what it says doesn't depend on which groups were asked for and left memory scattered.
        _add_splits(results, options, subjects, progress)
        for group in options.groups():
            _add_group(results, group, subjects, progress)
    results.overheads = [overhead(each) for each in subjects.values() if each is not PLAIN]
    return results


@contextmanager
def _scopes(options: Options) -> Iterator[None]:
    with ExitStack() as scopes:
        if not options.not_compiled:
            scopes.enter_context(empty_cache())  # whose key would not know of changed rules
            scopes.enter_context(traced_backward())
        scopes.enter_context(quiet_machine())  # Inductor compiles for as many threads as there are
        yield


def _add_group(results: Results, group: Group, subjects: dict[str, Subject], progress: Progress) -> None:
    """Check all steps of a group, time those that pass in turns, and add their figures."""
    if group.mode != EAGER:
        _fill_cache(group, subjects, progress)
    passed: list[Prepared] = []
    for parameters in group.parameters:
        losses: list[float] | None = None
        for subject, layers in trials_of(group, parameters, subjects):
            seconds = _seconds(group, parameters, subject, layers)
            progress(f"{group.name}: {parameters} parameters, {subject.name} x{layers}", seconds)
            found = prepared(group, subject, layers, parameters, losses)
            if isinstance(found, Gap):
                results.gaps.append(found)
                continue
            losses = found[0].losses if subject is PLAIN else losses
            passed.append(found)
    trials = [(trial.parameters, trial.layers) for trial, _ in passed]
    progress(f"{group.name}: timing", seconds_of_timing(group, trials, results.settings))
    variants = [each for trial, _ in passed for each in trial.variants()]
    add = partial(_add_figures, results, passed)
    measure_into(add, variants, results.settings, _pairs(passed))
    torch.compiler.reset()  # the compiled are timed: their code and guards can go


def _fill_cache(group: Group, subjects: dict[str, Subject], progress: Progress) -> None:
    """Compile all steps of a group, so that Inductor has their C++, and no compile time holds a C++ compiler's."""
    for parameters in group.parameters:
        for subject, layers in trials_of(group, parameters, subjects):
            seconds = _seconds(group, parameters, subject, layers)
            progress(f"{group.name}: {parameters} parameters, {subject.name} x{layers}, for the cache", seconds)
            prepared(group, subject, layers, parameters, None)
            torch.compiler.reset()


def prepared(
    group: Group, subject: Subject, layers: int, parameters: int, plain: Sequence[float] | None
) -> Prepared | Gap:
    """A step that passed its check, given the losses of the plain one; or a gap with the reason."""
    try:
        trial = StepTrial(group, subject, layers, parameters)
        trial.check(plain)
        return trial, trial.peak_bytes()
    except Exception as error:  # noqa: BLE001  # whatever a type raises is the reason that the report gives
        inner = getattr(error, "inner_exception", error)  # of one that only says which backend raised
        return group.gap(parameters, subject.name, layers, reason_of(inner), kind_of(error))


def _pairs(passed: Sequence[Prepared]) -> list[tuple[str, str]]:
    """Each wrapped step, and the plain one with as many parameters."""
    plain = {trial.parameters: trial.name for trial, _ in passed if trial.subject is PLAIN}
    wrapped = [trial for trial, _ in passed if trial.layers and trial.parameters in plain]
    return [(trial.name, plain[trial.parameters]) for trial in wrapped]


def _add_figures(results: Results, passed: Sequence[Prepared], measured: Measurement) -> None:
    """What is too noisy is a gap: a step, the check of its guards, a slope."""
    plain = dict(_pairs(passed))
    figures: list[Figure] = []
    for trial, peak in passed:
        guards = _guards(results, trial, measured)
        results.add(figures, partial(_figure, trial, peak, plain.get(trial.name), guards, measured), trial.gap)
    results.figures += figures
    add_slopes(results, figures, measured)


def _guards(results: Results, trial: StepTrial, measured: Measurement) -> Summary | None:
    found: list[Summary] = []
    if trial.guards_name in measured.rounds:
        results.add(found, partial(measured.time, trial.guards_name), partial(trial.gap, part="guards"))
    return found[0] if found else None


def _figure(trial: StepTrial, peak: int, plain: str | None, guards: Summary | None, measured: Measurement) -> Figure:
    group, name = trial.group, trial.name
    rounds = measured.rounds[name]
    return Figure(
        name,
        group.model,
        group.optimizer,
        group.mode,
        trial.parameters,
        trial.subject.name,
        trial.layers,
        group.size.width,
        group.size.batch,
        measured.time(name),
        measured.ratio(name, plain) if plain else None,
        _added(rounds, measured.rounds[plain], trial) if plain else None,
        guards,
        trial.compilation.compile_ns,
        trial.compilation.graphs,
        trial.compilation.recompiled,
        peak,
        tuple(trial.losses),
        tuple(rounds),
    )


def _added(mine: Sequence[float], plain: Sequence[float], trial: StepTrial) -> Summary:
    """What wrapping adds, by parameter and layer: a difference, which may be about nothing, so given at any width."""
    by = trial.parameters * trial.layers
    return Summary.of([(wrapped - bare) / by for wrapped, bare in zip(mine, plain, strict=True)])


def _split_trials(options: Options, subjects: dict[str, Subject]) -> Iterator[tuple[Subject, int]]:
    """LoggingTensor in each number of layers, its peers in one; plain first."""
    if options.splits():
        yield PLAIN, 0
        yield from ((subjects[LOGGING], layers) for layers in options.splits())
        yield from ((peer, 1) for peer in load_peers())


def _split_seconds(options: Options, trials: int) -> tuple[float, float]:
    """To build the trials, and to time them."""
    if not trials:
        return 0.0, 0.0
    return trials * seconds_of_trial(SPLIT, PARAMETERS, 1), seconds_of_timing(SPLIT, [], _longer(options.settings))


def _longer(settings: Settings) -> Settings:
    """Differences are noisier than times."""
    return replace(settings, seconds=3 * settings.seconds)


def _add_splits(results: Results, options: Options, subjects: dict[str, Subject], progress: Progress) -> None:
    """Check all, time the parts of those that pass in turns, and add the splits."""
    passed: list[SplitTrial] = []
    asked = list(_split_trials(options, subjects))
    building, timing = _split_seconds(options, len(asked))
    for subject, layers in asked:
        progress(f"split of {PARAMETERS} parameters: {subject.name} x{layers}", building / len(asked))
        found = prepared(SPLIT, subject, layers, PARAMETERS, passed[0].step.losses if passed else None)
        if isinstance(found, Gap):
            results.gaps.append(found)
        else:
            passed.append(SplitTrial(found[0]))
    if passed and passed[0].step.subject is PLAIN:
        progress(f"split of {PARAMETERS} parameters: timing", timing)

        def add(measured: Measurement) -> None:
            results.splits = [trial.split(passed[0], measured) for trial in passed[1:]]

        measure_into(add, [each for trial in passed for each in trial.variants()], _longer(results.settings))
    torch.compiler.reset()
