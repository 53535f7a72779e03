"""Runs the bench: each case for all its subjects in turns, once they have shown that they compute what plain does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..progress import Progress, silent
from ..timing import Measurement, Variant, describe_machine, measure_into
from ..trials import LACKING, WRONG, Gap, reason_of
from .cases import STEP, Case, cases
from .floor import NoFloorError, floor_of
from .options import Options
from .results import Figure, Results
from .subjects import FAKE_LIKE, FLOOR, PLAIN, Subject, subjects


def work(options: Options) -> float:
    """How many seconds a run takes."""
    return len(cases()) * _seconds_each(options)


def _seconds_each(options: Options) -> float:
    return options.settings.seconds + 0.5


def run(options: Options, progress: Progress = silent, begun: Callable[[Results], object] = id) -> Results:
    """Measure, and return all figures with the reasons for those that are missing."""
    results = Results(describe_machine(), options.settings)
    begun(results)
    known = subjects()
    for case in cases():
        progress(case.name, _seconds_each(options))
        _add_case(results, case, [known[name] for name in case.subjects])
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
    if case.kind == STEP:
        floors = [_floor(case, each, expected) for each in passed if each.name == FAKE_LIKE]
        results.gaps += [each for each in floors if isinstance(each, Gap)]
        passed += [each for each in floors if isinstance(each, Variant)]
    pairs = [(variant.name, passed[0].name) for variant in passed[1:]]
    measure_into(lambda measured: _add_figures(results, case, measured), passed, results.settings, pairs)


def _floor(case: Case, step: Variant, expected: list[Any]) -> Variant | Gap:
    try:
        floor = floor_of(step)
        with floor.scope():
            result = floor.function(*floor.args)
    except NoFloorError as error:
        return case.gap(FLOOR, reason_of(error), LACKING)
    return floor if _described(result) == expected else _wrong(case, FLOOR, result, expected)


def _checked(case: Case, subject: Subject, expected: list[Any]) -> Variant | Gap:
    try:
        variant, result = _result(case, subject)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the reason that the report gives
        return case.gap(subject.name, reason_of(error), LACKING)
    if isinstance(result, subject.kind) and _described(result) == expected:
        return variant
    return _wrong(case, subject.name, result, expected)


def _wrong(case: Case, subject: str, result: Any, expected: list[Any]) -> Gap:
    return case.gap(subject, f"{type(result).__name__} {_described(result)}, plain torch gives {expected}", WRONG)


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


def _add_figures(results: Results, case: Case, measured: Measurement) -> None:
    for name in measured.rounds:
        results.add(results.figures, partial(_figure, case, name, measured), partial(case.gap, name))


def _figure(case: Case, name: str, measured: Measurement) -> Figure:
    rounds = tuple(measured.rounds[name])
    return Figure(f"{case.name} | {name}", case.kind, case.what, name, measured.time(name), rounds)
