"""Runs the bench: in each group all steps are built and checked, then those that passed are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import lamina

from ..compiler import empty_cache, traced_backward
from ..ours import LOGGING, load_ours
from ..subjects import PLAIN, Subject
from ..timing import InterruptedMeasurement, Measurement, Summary, describe_machine, measure, quiet_machine
from ..trials import LACKING, WRONG, Gap, WrongResultError, reason_of
from .conditions import EAGER, MODEL, Group
from .growth import slopes
from .memory import overhead
from .models import MLP
from .optimizers import SGD
from .options import Options, Progress
from .peers import load_peers
from .results import Figure, Results
from .split import PARAMETERS, SplitTrial
from .trial import StepTrial

INT8 = "lamina ScaledInt8Tensor"
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


def work(options: Options) -> int:
    """How many trials a run has."""
    subjects = load_subjects()
    in_groups = sum(len(trials_of(group, count, subjects)) for group in options.groups() for count in group.parameters)
    return in_groups + len(list(_split_trials(options, subjects)))


def run(options: Options, progress: Progress, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing. `begun` is given the results before
    there are any: after an interrupt they hold what was measured so far, marked."""
    subjects = load_subjects()
    results = Results(describe_machine(), options.settings, options.not_compiled)
    results.subjects = {name: subject.origin for name, subject in subjects.items()}
    begun(results)
    try:
        with _scopes(options):
            for group in options.groups():
                _add_group(results, group, subjects, progress)
            _add_splits(results, options, subjects, progress)
        results.overheads = [overhead(each) for each in subjects.values() if each is not PLAIN]
    except KeyboardInterrupt:
        results.stopped = "interrupted: what was not measured is not here"
        raise
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
    passed: list[Prepared] = []
    for parameters in group.parameters:
        if group.mode != EAGER:
            _compile_once(group, parameters)
        losses: list[float] | None = None
        for subject, layers in trials_of(group, parameters, subjects):
            progress(f"{group.name}: {parameters} parameters, {subject.name} x{layers}", 1)
            found = prepared(group, subject, layers, parameters, losses)
            if isinstance(found, Gap):
                results.gaps.append(found)
                continue
            losses = found[0].losses if subject is PLAIN else losses
            passed.append(found)
    progress(f"{group.name}: timing", 0)
    try:
        measured = _measured(passed, results)
    except InterruptedMeasurement as error:
        _add_figures(results, passed, error.measurement)
        raise
    _add_figures(results, passed, measured)
    torch.compiler.reset()  # the compiled are timed: their code and guards can go


def _compile_once(group: Group, parameters: int) -> None:
    """Fill Inductor's cache with the C++ of the plain step, so that no compile time holds a C++ compiler's."""
    prepared(group, PLAIN, 0, parameters, None)
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
        kind = WRONG if isinstance(error, WrongResultError) else LACKING
        where = f"{group.model}, {parameters} parameters, {group.optimizer}"
        inner = getattr(error, "inner_exception", error)  # of one that only says which backend raised
        return Gap(where, subject.name, layers, group.mode, reason_of(inner), kind)


def _measured(passed: Sequence[Prepared], results: Results) -> Measurement:
    names = {(trial.subject.name, trial.parameters): trial.name for trial, _ in passed}
    pairs = [
        (trial.name, names[PLAIN.name, trial.parameters])
        for trial, _ in passed
        if trial.layers and (PLAIN.name, trial.parameters) in names
    ]
    return measure([each for trial, _ in passed for each in trial.variants()], results.settings, pairs)


def _add_figures(results: Results, passed: Sequence[Prepared], measured: Measurement) -> None:
    if not measured.whole_rounds():
        return
    plain = {trial.parameters: trial for trial, _ in passed if trial.subject is PLAIN}
    figures = [_figure(trial, peak, plain.get(trial.parameters), measured) for trial, peak in passed]
    results.figures += figures
    results.slopes += slopes(figures)


def _figure(trial: StepTrial, peak: int, plain: StepTrial | None, measured: Measurement) -> Figure:
    group, name = trial.group, trial.name
    wrapped = plain is not None and trial.layers > 0
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
        measured.ratio(name, plain.name) if plain and wrapped else None,
        _added(rounds, measured.rounds[plain.name], trial) if plain and wrapped else None,
        measured.time(trial.guards_name) if trial.guards_name in measured.rounds else None,
        trial.compilation.compile_ns,
        trial.compilation.graphs,
        trial.compilation.recompiled,
        peak,
        tuple(trial.losses),
        tuple(rounds),
    )


def _added(mine: Sequence[float], plain: Sequence[float], trial: StepTrial) -> Summary:
    """What wrapping adds, by parameter and layer."""
    by = trial.parameters * trial.layers
    return Summary.of([(wrapped - bare) / by for wrapped, bare in zip(mine, plain, strict=True)])


def _split_trials(options: Options, subjects: dict[str, Subject]) -> Iterator[tuple[Subject, int]]:
    """LoggingTensor in each number of layers, its peers in one; plain first."""
    if options.splits():
        yield PLAIN, 0
        yield from ((subjects[LOGGING], layers) for layers in options.splits())
        yield from ((peer, 1) for peer in load_peers())


def _add_splits(results: Results, options: Options, subjects: dict[str, Subject], progress: Progress) -> None:
    """Check all, time the parts of those that pass in turns, and add the splits."""
    group = Group(MLP, SGD, MODEL, (PARAMETERS,), 0)
    passed: list[SplitTrial] = []
    for subject, layers in _split_trials(options, subjects):
        progress(f"split of {PARAMETERS} parameters: {subject.name} x{layers}", 1)
        found = prepared(group, subject, layers, PARAMETERS, passed[0].step.losses if passed else None)
        if isinstance(found, Gap):
            results.gaps.append(found)
        else:
            passed.append(SplitTrial(found[0]))
    if passed and passed[0].step.subject is PLAIN:
        longer = replace(results.settings, seconds=3 * results.settings.seconds)  # differences are noisier than times
        measured = measure([each for trial in passed for each in trial.variants()], longer)
        results.splits = [trial.split(passed[0], measured) for trial in passed[1:]]
    torch.compiler.reset()
