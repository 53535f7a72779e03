"""Runs the checks on a class, some at a time, each in a process of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from multiprocessing.connection import wait
from typing import Any

import torch

from .check import Check, chosen
from .discovery import subject_of
from .outcome import NotApplicable, shown
from .process import Attempt, outcome_of, signals_wait
from .report import Report, Result, Status
from .subject import Decode, Kind, Make, Subject, SubjectError
from .sweep import operators

# Called with each result, how many have ended, and how many there are.
Progress = Callable[[Result, int, int], object]
# Called with each check before it starts.
Started = Callable[[Check], object]

_SECOND = 1.0  # a process that ended while a child of its own holds the connection is found after that
MAKE_SECONDS = 60.0  # after that long, make hangs
_COMPILING = ("compile", "export", "life", "devices")  # an optimizer imports the compiler, too


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
    started: Started | None = None,
) -> Report:
    """Check a tensor subclass, lamina's or any other, against all that users of such classes rely on.

    ``make`` builds an instance from a plain tensor; for a lamina class it is ``from_plain``. ``kind``, ``decode``: what
    instances stand for, and their plain values; found out where they can be. ``only``: names of checks or groups.
    ``skip``, ``limits``: name to the reason why a check is left out, or its failure accepted. ``full``: the slow checks
    and all operator samples, too. ``rtol``: the error allowed of approximate products, relative to the largest value.
    ``jobs``: how many at a time. ``isolated``: each in a process of its own. A class that can't be checked at all gives
    a report with one failure, which says why.

    Raises:
        ValueError: ``only``, ``skip`` or ``limits`` name no check, ``kind`` no kind, or ``jobs`` is less than 1.

    >>> check_subclass(int).ok
    False
    """
    checks, left_out, accepted_for = chosen(only, full=full), reasons("skip", skip), reasons("limits", limits)
    kind = None if kind is None else Kind(kind)
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs has to be 1 or more, got {jobs}")

    def build() -> Subject:
        return replace(subject_of(cls, make, kind=kind, decode=decode, device=device, rtol=rtol), full=full)

    label = cls.__qualname__ if isinstance(cls, type) else shown(cls)
    try:
        apart = isolated and torch.device(device).type == "cpu" and _can_fork(build)
        subject = build()
    except SubjectError as error:
        return Report(label, "unknown", [Result("can_be_checked", "declaration", Status.FAIL, str(error))])
    report = Report(label, subject.kind.value)
    with closing(_results(checks, subject, left_out, (jobs or cores()) if apart else 0, started)) as results:
        _collect(report, (accepted(each, accepted_for) for each in results), [each.name for each in checks], progress)
    return report


def _collect(report: Report, results: Iterable[Result], names: Sequence[str], progress: Progress | None) -> None:
    """The results into the report, in the order of ``names``; told as they come."""
    for result in results:
        report.results.append(result)
        if progress is not None:
            progress(result, len(report.results), len(names))
    report.results.sort(key=lambda each: names.index(each.name))


def reasons(argument: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """``skip`` or ``limits``, looked through.

    Raises:
        ValueError: a name is that of no check.
        TypeError: it is no mapping.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} has to be a mapping from the name of a check to the reason, got {given!r}")
    chosen(given, full=True)
    return dict(given)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def accepted(result: Result, limits: Mapping[str, str]) -> Result:
    """A failure that the caller accepts, as a known limit."""
    reason = _reason(limits, result)
    if result.status is not Status.FAIL or reason is None:
        return result
    return replace(result, status=Status.KNOWN_LIMIT, detail=reason)


def _reason(given: Mapping[str, str], each: Check | Result) -> str | None:
    return next((given[label] for label in (each.name, each.id, each.group) if label in given), None)


def _can_fork(build: Callable[[], Subject]) -> bool:
    """Whether checks can run in forks of this process. The subject is made in one, where it may crash or hang.

    Raises:
        SubjectError: it did.
    """

    def can_be_checked(_: Subject) -> None:
        try:
            torch.ones((), device="cpu", requires_grad=True).backward()
        except RuntimeError as error:
            raise NotApplicable("on a machine with a GPU this process has run a backward") from error
        with suppress(SubjectError):  # it is raised once more, in the parent
            build()

    probe = Check("can_be_checked", "declaration", can_be_checked, "", seconds=MAKE_SECONDS)
    anything = Subject(torch.Tensor, torch.clone, Kind.TRANSPARENT, torch.clone)
    with closing(_in_processes([probe], anything, 1, None)) as results:
        result = next(results)
    if result.status is Status.FAIL:
        raise SubjectError(f"to make an instance and to read it: {result.detail}")
    return result.status is Status.PASS


def _results(
    checks: Sequence[Check], subject: Subject, skip: Mapping[str, str], jobs: int, started: Started | None
) -> Generator[Result, None, None]:
    """Of each check, as they come; ``jobs`` 0: in this process."""
    runnable: list[Check] = []
    for each in checks:
        reason = _reason(skip, each)
        if reason is None and subject.kind in each.kinds:
            runnable.append(each)
        else:
            text = f"not for {subject.kind.value} classes" if reason is None else f"left out: {reason}"
            yield Result(each.name, each.group, Status.NOT_APPLICABLE, text, 0.0, each.reported)
    if jobs:
        _warm_up(runnable)
        yield from _in_processes(runnable, subject, jobs, started)
    else:
        yield from _here(runnable, subject, started)


def _here(checks: Sequence[Check], subject: Subject, started: Started | None) -> Iterator[Result]:
    for each in checks:
        if started is not None:
            started(each)
        yield outcome_of(each, subject)


def _in_processes(
    checks: Sequence[Check], subject: Subject, jobs: int, started: Started | None
) -> Generator[Result, None, None]:
    """The results as they come. Should the caller stop early, what is at work is ended."""
    waiting = list(reversed(checks))
    at_work: list[Attempt] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < jobs:
                if started is not None:
                    started(waiting[-1])
                with signals_wait():
                    at_work.append(Attempt(waiting.pop(), subject))
            for each in _ended(at_work):
                at_work.remove(each)
                yield each.end()
    finally:
        for each in at_work:
            each.stop()


def _ended(at_work: Sequence[Attempt]) -> list[Attempt]:
    """Those that have a result, died, or hang; none, if all go on for a second."""
    first = min(each.left for each in at_work)
    ready = wait([each.connection for each in at_work], max(0.0, min(first, _SECOND)))
    return [each for each in at_work if each.connection in ready or each.left <= 0 or each.over]


def _warm_up(checks: Sequence[Check]) -> None:
    """What many children would import, each for itself."""
    if torch.distributed.is_available():
        import_module("torch.distributed.tensor")  # the first op of some classes does, and takes 2 s
    if any(each.group in ("distributed", "transforms", "fakes", "modes", "writes") for each in checks):
        torch.compiler.reset()  # imports Dynamo, as FSDP2, torch.func, modes and optimizers would
    if any(each.group in _COMPILING for each in checks):
        _warm_up_compiler()
    if any(each.group == "samples" for each in checks):
        with suppress(ImportError):  # a check that needs it says what to install
            operators()
    if any(each.group in ("compile", "export") for each in checks):
        # No backward: where there is a GPU, autograd's threads would start here, and a fork has none of them.
        torch.compile(torch.nn.Tanh(), backend="aot_eager")(torch.ones(2, requires_grad=True))


@cache
def _warm_up_compiler() -> None:
    """Compiles once: a child then takes 0.2 s to compile, not 2. Beside a GPU without a backward: see ``_can_fork``."""
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        values = torch.ones(2, device="cpu", requires_grad=not torch.accelerator.is_available())
        result = torch.compile(lambda x: x.sin() * 2, backend="aot_eager")(values)
        if result.requires_grad:
            result.sum().backward()
