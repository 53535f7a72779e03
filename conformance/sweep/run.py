"""The sweep: each case once plain, once wrapped, and the two compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .compare import Candidate, UnforeseenError
from .report import Report
from .samples import CHANGES_SHAPE, DTYPES, LIMIT, VARIANTS, Arguments, Case, cases, error_cases
from .trial import Run, Trial, call, failure_of, leaf_maker

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo


At = Callable[[Case], object]


def sweep(
    candidate: Candidate,
    ops: Sequence[OpInfo],
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    variants: Sequence[str] = VARIANTS,
    limit: int | None = LIMIT,
    aliasing: bool = False,
    at: At | None = None,
) -> Report:
    """Judge ``candidate`` on the samples of ``ops``; ``aliasing`` also compares views and shared storages. ``at`` is
    told of each case before it runs.
    """
    report = Report()
    with _quiet():
        for case in cases(ops, dtypes, variants, limit):
            if at is not None:
                at(case)
            _judge(candidate, case, aliasing, report)
    return report


def sweep_errors(candidate: Candidate, ops: Sequence[OpInfo], *, at: At | None = None) -> Report:
    """Judge ``candidate`` on the wrong inputs of ``ops``: what the plain run refuses is refused with the same type."""
    report = Report()
    with _quiet():
        for case in error_cases(ops):
            if at is not None:
                at(case)
            _judge_error(candidate, case, report)
    return report


def _judge_error(candidate: Candidate, case: Case, report: Report) -> None:
    try:
        plain = case.fresh_arguments(False).map(leaf_maker(candidate, candidate.reference))
        wrapped = case.fresh_arguments(False).map(leaf_maker(candidate, candidate.wrap))
    except Exception:  # a sample that cannot even be copied: two views of one storage, nested tensors
        report.skipped += 1
        return
    expected, got = _error_of(case, plain), _error_of(case, wrapped)
    if expected is None or not any(isinstance(tensor, candidate.cls) for tensor in wrapped.tensors()):
        report.skipped += 1
    elif isinstance(got, type(expected)):
        report.passed += 1
    else:
        kind, detail = type(got).__name__, f"{str(got)[:90]} and not {type(expected).__name__}: {str(expected)[:90]}"
        report.failures.append(failure_of(candidate, case, "error", kind, detail.replace("\n", " ")))


def _error_of(case: Case, arguments: Arguments) -> Exception | None:
    try:
        call(case, arguments)
    except Exception as error:
        return error
    return None


def count_cases(
    ops: Sequence[OpInfo],
    limit: int | None = LIMIT,
    dtypes: Sequence[torch.dtype] = DTYPES,
    variants: Sequence[str] = VARIANTS,
) -> int:
    """How many cases a sweep of ``ops`` has, those counted that torch itself refuses; nothing is run."""
    with _quiet():
        return sum(1 for _ in cases(ops, dtypes, variants, limit))


@contextmanager
def _quiet() -> Iterator[None]:
    """Samples call deprecated operators and odd dtypes on purpose: their warnings are torch's, in both runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _judge(candidate: Candidate, case: Case, aliasing: bool, report: Report) -> None:
    plain = _plain_run(candidate, case)
    if plain is None:
        report.skipped += 1
        return
    if not plain.of_the_class:
        report.untouched += 1
        return
    sparse = any(t.layout is not torch.strided for t in plain.arguments.tensors() + plain.outputs())
    report.sparse += sparse
    report.loose += case.loose
    trial = Trial(candidate, case, plain, aliasing)
    failure = trial.first_failure()
    report.with_grad += trial.compared_gradients
    if trial.rounded:
        report.rounded[case.name] += 1
    if failure is None:
        report.passed += 1
    elif sparse and trial.refused:
        report.refused += 1
    else:
        report.failures.append(failure)


def _settle(candidate: Candidate, case: Case, run: Run, before: list[Any]) -> None:
    try:
        for seen, tensor in zip(before, run.arguments.tensors(), strict=True):
            target = tensor is run.arguments.input and case.variant == "inplace"
            candidate.settle(seen, run.target if target else tensor, written=target)
    except UnforeseenError:
        run.of_the_class = False


def _plain_run(candidate: Candidate, case: Case) -> Run | None:
    """The plain run, with gradients where the operator has them; None where it raises both with and without."""
    for grad in (True, False) if case.differentiable else (False,):
        try:
            given = case.fresh_arguments(grad)
            arguments = given.map(leaf_maker(candidate, candidate.reference))
            taken = [candidate.takes(tensor) for tensor in given.tensors()]
            before = [
                candidate.snapshot(reference) if wrapped else None
                for wrapped, reference in zip(taken, arguments.tensors(), strict=True)
            ]
            run = call(case, arguments)
            run.of_the_class = any(taken)
        except Exception:  # what torch itself refuses is no sample: the caller counts it as skipped
            continue
        if case.op.name not in CHANGES_SHAPE:
            _settle(candidate, case, run, before)
        return run
    return None
