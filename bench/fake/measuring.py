"""Runs the bench: each case for all its subjects in turns, once they have shown that they compute what plain does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..timing import InterruptedMeasurement, Measurement, TooNoisyError, Variant, describe_machine, measure
from ..trials import LACKING, NOISY, WRONG, Gap, reason_of
from .cases import Case, cases
from .options import Options, Progress
from .results import Figure, Results
from .subjects import PLAIN, Subject, subjects


def work(options: Options) -> int:  # noqa: ARG001 - as every bench is asked
    """How many cases a run has."""
    return len(cases())


def run(options: Options, progress: Progress, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing. `begun` is given the results before
    there are any: after an interrupt they hold what was measured so far, marked."""
    results = Results(describe_machine(), options.settings)
    begun(results)
    known = subjects()
    try:
        for case in cases():
            progress(case.name)
            _add_case(results, case, [known[name] for name in case.subjects])
    except KeyboardInterrupt:
        results.stopped = "interrupted: what was not measured is not here"
        raise
    return results


def _add_case(results: Results, case: Case, asked: list[Subject]) -> None:
    with_values = next(each for each in asked if each.name == PLAIN)
    expected = _described(_result(case, with_values)[1])
    passed: list[Variant] = []
    for subject in asked:
        found = _checked(case, subject, expected)
        if isinstance(found, Gap):
            results.gaps.append(found)
        else:
            passed.append(found)
    pairs = [(variant.name, passed[0].name) for variant in passed[1:]]
    try:
        measured = measure(passed, results.settings, pairs)
    except InterruptedMeasurement as error:
        _add_figures(results, case, passed, error.measurement)
        raise
    _add_figures(results, case, passed, measured)


def _checked(case: Case, subject: Subject, expected: list[Any]) -> Variant | Gap:
    try:
        variant, result = _result(case, subject)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the reason that the report gives
        return Gap(case.what, subject.name, 0, case.kind, reason_of(error), LACKING)
    if isinstance(result, subject.kind) and _described(result) == expected:
        return variant
    wrong = f"{type(result).__name__} {_described(result)}, plain torch gives {expected}"
    return Gap(case.what, subject.name, 0, case.kind, wrong, WRONG)


def _result(case: Case, subject: Subject) -> tuple[Variant, Any]:
    """The variant, called twice: the second call has seen its signatures before."""
    with subject.made_in():
        function, args = case.make()
    variant = Variant(subject.name, function, args, subject.scope)
    with subject.scope():
        function(*args)
        return variant, function(*args)


def _described(result: Any) -> list[Any]:
    return [tuple(result.shape), result.stride(), str(result.dtype), result.requires_grad]


def _add_figures(results: Results, case: Case, passed: list[Variant], measured: Measurement) -> None:
    for variant in passed:
        name = variant.name
        if not measured.rounds[name]:
            continue
        try:
            time_ns = measured.time(name)
        except TooNoisyError as error:
            results.gaps.append(Gap(case.what, name, 0, case.kind, reason_of(error), NOISY))
            continue
        rounds = tuple(measured.rounds[name])
        results.figures.append(Figure(f"{case.name} | {name}", case.kind, case.what, name, time_ns, rounds))
