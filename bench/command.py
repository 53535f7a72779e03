"""A bench on the command line: its arguments, its progress, its tables or JSON, its picture, its exit status."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .budget import Budget
from .gaps import gap_lines, print_gaps
from .picture import write_picture
from .progress import Progress, told
from .record import Record
from .tables import Table, budgets_table, print_tables
from .timing import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 130
"""The exit status of a shell's command that Ctrl-C ended."""
Options = TypeVar("Options")
Found = TypeVar("Found", bound=Record)


def _nothing(_: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Command(Generic[Options, Found]):
    """A bench: what it can be asked, how it measures, how it shows what it found.

    `run(options, progress, begun)` gives the results to `begun` before there are any figures, for whoever wants to
    keep those of half a run; it tells `progress` what begins, and of how many of the `work(options)` seconds.
    """

    parser: Callable[[], argparse.ArgumentParser]
    options: Callable[[argparse.Namespace], Options]
    work: Callable[[Options], float]
    run: Callable[[Options, Progress, Callable[[Found], object]], Found]
    legend: str
    tables: Callable[[Found], Iterable[Table]]
    budgets: Callable[[Found], Iterable[Budget]] = _nothing
    notes: Callable[[Found], list[str]] = _nothing
    picture: Callable[[Found], Canvas] | None = None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print, draw; after Ctrl-C, what there is by then. Returns the exit status."""
        chosen = self.parser().parse_args(arguments)
        plot: Path | None = getattr(chosen, "plot", None)
        if plot and not plot.resolve().parent.is_dir():
            print(f"--plot {plot}: there is no folder {plot.resolve().parent}", file=sys.stderr)
            return BAD_INPUT  # before minutes are spent
        results = self.measured(self.options(chosen))
        if chosen.json:
            print(json.dumps(self.data(results), allow_nan=False))
        else:
            self.show(results)
        if plot:
            self.draw(results, plot)
        if results.stopped:
            return INTERRUPTED
        return FAILED if results.failed else DONE

    def measured(self, options: Options) -> Found:
        """Run with a bar on stderr, or lines where rich is not installed; after Ctrl-C, what was measured, marked."""
        begun: list[Found] = []
        try:
            with told(self.work(options), in_seconds=True) as progress:
                return self.run(options, progress, begun.append)
        except KeyboardInterrupt:
            if not begun:
                raise
            return replace(begun[0], stopped="interrupted: what was not measured is not here")

    def data(self, results: Found) -> dict[str, Any]:
        """The results and their budgets as plain data."""
        return {**results.to_json(), "budgets": [each.to_json() for each in self.budgets(results)]}

    def show(self, results: Found) -> None:
        """Print all tables, and why figures are missing: of budgets, those of what was measured."""
        origins = dict.fromkeys(results.subjects.values())
        print(", ".join([*(f"{name} {value}" for name, value in results.machine.items()), *origins]))
        print(self.legend)
        for line in remarks(results):
            print(line)
        measured = [each for each in self.budgets(results) if each.measured is not None]
        print_tables([table for table in (*self.tables(results), budgets_table(measured)) if table.rows])
        for note in self.notes(results):
            print(f"- {note}")
        print_gaps(results.gaps, results.absences)

    def draw(self, results: Found, path: Path) -> None:
        """Write the picture, SVG where the path ends so, PNG otherwise; or say that there is nothing to draw."""
        if results.figures and self.picture:
            write_picture(self.picture(results), path)
        else:
            print(f"--plot {path}: nothing to draw, no figure was found", file=sys.stderr)


def remarks(results: Record) -> list[str]:
    """What keeps the figures from being the whole."""
    found = [f"eager only, nothing was compiled: {results.not_compiled}"] if results.not_compiled else []
    return [*found, *([results.stopped] if results.stopped else [])]


def missing(results: Record) -> list[str]:
    """Why figures are missing, in lines."""
    return [*gap_lines(results.gaps, results.absences), *remarks(results)]


def bench_parser(bench: str, description: str, *, plot: bool = True, **more: Any) -> argparse.ArgumentParser:
    """The arguments that all benches have."""
    parser = argparse.ArgumentParser(prog=f"lamina bench {bench}", description=description, **more)
    parser.add_argument("--quick", action="store_true", help="less of it, in fewer rounds: rougher figures")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    if plot:
        parser.add_argument("--plot", type=Path, metavar="PATH", help="write a picture: SVG by name, else PNG")
    return parser


def positive(text: str) -> int:
    """A number of things on the command line."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of them; write 1 or more")
    return int(text)


def clocked(settings: Settings, chosen: argparse.Namespace) -> Settings:
    """The settings, by the clock that was chosen."""
    return replace(settings, clock=time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns)
