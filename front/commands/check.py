"""`lamina check module:Class`: what the conformance kit finds in a tensor subclass."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from ..conformance import Kind
from .target import load_object, load_subclass

if TYPE_CHECKING:
    from ..conformance import Report, Result

INTERRUPTED, TERMINATED = 130, 143


def check(
    target: Annotated[
        str | None, typer.Argument(metavar="MODULE:CLASS", help="A tensor subclass, such as lamina:LoggingTensor.")
    ] = None,
    make: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Builds an instance from a plain tensor. A lamina class has from_plain for that.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A check or group; repeatable, and a,b names two.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="NAME=REASON", help="A check or group to leave out; repeatable.")
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="What instances stand for; found out where it can be.")] = None,
    rtol: Annotated[
        float | None, typer.Option(min=0, help="The error of products, relative to the largest value.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The slow checks and all operator samples, too.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many checks at a time.", show_default="cores")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of the table.")] = False,
    junit: Annotated[Path | None, typer.Option(metavar="PATH", help="Write JUnit XML, for build servers.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Print all checks, and what they check.")] = False,
) -> None:
    """Check a tensor subclass against what users of such classes rely on: each check in a process of its own.

    The exit status is 0 if nothing fails, 1 if something does, 2 for bad usage.
    """
    from .check_report import print_list, print_report

    if show_list:
        print_list()
        return
    arguments = _arguments(target, make, only or [], skip or [])
    _refuse_junit(junit)
    report = _run({**arguments, "kind": kind, "rtol": rtol, "full": full, "jobs": jobs}, quiet=json)
    print_report(report, json=json)
    if not report.complete:
        raise typer.Exit(INTERRUPTED)
    if junit is not None:
        _write_junit(report, junit)
    raise typer.Exit(0 if report.ok else 1)


def _arguments(target: str | None, make: str | None, only: Sequence[str], skip: Sequence[str]) -> dict[str, Any]:
    """Those of ``check_subclass`` that have to be found."""
    from ..conformance.check import chosen
    from ..conformance.run import reasons

    if target is None:
        raise typer.BadParameter("name a class, as module:Class, or give --list")
    names = [name.strip() for each in only for name in each.split(",")] or None
    left_out = dict(_reason(each) for each in skip)
    try:
        chosen(names, full=True)
        reasons("skip", left_out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    function = None if make is None else load_object(make)
    if make is not None and not callable(function):
        raise typer.BadParameter(f"--make {make} is no function, but {function!r}")
    return {"cls": load_subclass(target, torch.Tensor), "make": function, "only": names, "skip": left_out}


def _reason(text: str) -> tuple[str, str]:
    name, equals, reason = text.partition("=")
    if not (name and equals and reason.strip()):
        raise typer.BadParameter(f"--skip {text}: write it as NAME=REASON")
    return name.strip(), reason.strip()


def _run(arguments: dict[str, Any], *, quiet: bool) -> Report:
    """With a progress bar on a terminal. Ctrl-C ends it, and what has ended so far is the report."""
    from ..bench.progress import progress_bar
    from ..conformance import Report, check_subclass
    from ..conformance.check import Check, chosen

    ended: list[Result] = []
    total = len(chosen(arguments["only"], full=arguments["full"]))
    try:
        with _terminable(), progress_bar(total, hidden=quiet or not sys.stderr.isatty(), with_left=True) as advance:

            def started(check: Check) -> None:
                advance(check.id, 0)

            def progress(result: Result, *_: int) -> None:
                ended.append(result)
                advance(result.id, 1)

            return check_subclass(**arguments, progress=progress, started=started)
    except KeyboardInterrupt:
        kind = arguments["kind"].value if arguments["kind"] else "unknown"
        return Report(arguments["cls"].__qualname__, kind, ended, complete=False)


@contextmanager
def _terminable() -> Iterator[None]:
    """A request to end, as build servers and ``timeout`` send it, ends the checks at work, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_junit(path: Path | None) -> None:
    """Before minutes are spent."""
    if path is None:
        return
    folder = path.resolve().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"--junit {path}: there is no folder {folder}")
    if path.is_dir():
        raise typer.BadParameter(f"--junit {path}: it is a folder")


def _write_junit(report: Report, path: Path) -> None:
    from ..bench.whole_file import write_whole

    try:
        write_whole(path, report.to_junit().encode())
    except OSError as error:
        sys.exit(f"lamina check: can't write {path}: {error.strerror or error}")
