"""Runs the checks on a class, some at a time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

import torch

from .check import Check, chosen
from .limits import known_limit
from .process import Attempt, outcome_of
from .report import Report, Result, Status
from .subject import Decode, Kind, Make, Subject, SubjectError, subject_of
from .sweep import operators

# Called with each result, how many have ended, and how many there are.
Progress = Callable[[Result, int, int], object]


def check_subclass(
    cls: Any,
    make: Make | None = None,
    *,
    kind: Kind | str | None = None,
    decode: Decode | None = None,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    full: bool = False,
    device: Any = "cpu",
    rtol: float | None = None,
    jobs: int | None = None,
    isolated: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Check a tensor subclass, lamina's or any other, against all that users of such classes rely on.

    ``make`` builds an instance from a plain tensor; for a lamina class it is ``from_plain``. ``kind``, ``decode``: what
    instances stand for, and their plain values; found out where they can be. ``only``: names of checks or groups.
    ``skip``, ``limits``: name to the reason why a check is left out, or its failure accepted. ``full``: the slow checks
    and all operator samples, too. ``rtol``: the error allowed where products are approximate, relative to the largest
    value. ``jobs``: how many at a time; the number of cores. ``isolated``: each in a process of its own.

    A class that can't be checked at all gives a report with one failure, which says why.

    Raises:
        ValueError: a name in ``only``, ``skip`` or ``limits`` is that of no check.

    >>> import lamina
    >>> lamina.conformance.check_subclass(lamina.LoggingTensor, only=["repr_is_short"]).ok
    True
    """
    skip, limits, checks = dict(skip or {}), dict(limits or {}), chosen(only, full=full)
    for names in filter(None, (skip, limits)):
        chosen(names, full=full)
    label = getattr(cls, "__qualname__", repr(cls))
    try:
        subject = replace(subject_of(cls, make, kind=kind, decode=decode, device=device, rtol=rtol), full=full)
    except SubjectError as error:
        return Report(label, "unknown", [Result("can_be_checked", "declaration", Status.FAIL, str(error))])
    report = Report(label, subject.kind.value)
    for result in _results(checks, subject, skip, jobs if isolated and subject.device.type == "cpu" else 0):
        report.results.append(accepted(result, subject, limits))
        if progress is not None:
            progress(report.results[-1], len(report.results), len(checks))
    order = [each.name for each in checks]
    report.results.sort(key=lambda each: order.index(each.name))
    return report


def accepted(result: Result, subject: Subject, limits: Mapping[str, str]) -> Result:
    """A failure that is accepted, by the caller or for a reason that ``limits`` knows, as a known limit."""
    if result.status is not Status.FAIL:
        return result
    reason = limits.get(result.name) or limits.get(result.id) or known_limit(result.name, subject.cls)
    if reason is None:
        return result
    return replace(result, status=Status.KNOWN_LIMIT, detail=reason)


def _results(checks: Sequence[Check], subject: Subject, skip: Mapping[str, str], jobs: int | None) -> Iterator[Result]:
    runnable: list[Check] = []
    for each in checks:
        reason = skip.get(each.name) or skip.get(each.id) or skip.get(each.group)
        if reason is None:
            runnable.append(each)
        else:
            yield Result(each.name, each.group, Status.NOT_APPLICABLE, f"left out: {reason}", 0.0, each.reported)
    if jobs == 0:
        yield from (outcome_of(each, subject) for each in runnable)
    else:
        with closing(_in_processes(runnable, subject, jobs or os.cpu_count() or 1)) as results:
            yield from results


def _in_processes(checks: Sequence[Check], subject: Subject, jobs: int) -> Generator[Result, None, None]:
    """The results as they come. Should the caller stop early, what is at work is ended."""
    _warm_up(checks)
    waiting = list(reversed(checks))
    at_work: list[Attempt] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < jobs:
                at_work.append(Attempt(waiting.pop(), subject))
            ready = wait([each.connection for each in at_work], max(0.0, min(each.left for each in at_work)))
            for each in [each for each in at_work if each.connection in ready or each.left <= 0]:
                at_work.remove(each)
                yield each.end()
    finally:
        for each in at_work:
            each.end()


def _warm_up(checks: Sequence[Check]) -> None:
    """What all children would import, each for itself."""
    torch.compiler.reset()
    if any(each.group == "samples" for each in checks):
        with suppress(ImportError):  # a check that needs it says what to install
            operators()
