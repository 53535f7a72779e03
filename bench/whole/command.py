"""The command `lamina bench all`: every bench, into a folder with the results, the plots and a report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ..budget import Budget
from ..progress import in_words, progress_bar, seconds_left
from ..tables import budgets_table, print_tables
from .bench import Asked, Bench, Tell
from .benches import BENCHES
from .folder import REPORT, RESULTS, write_pictures_and_report
from .running import Whole, run_all, write_results

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. The exit status: 1 if a bench or a file failed, 2 for bad input, 130 for Ctrl-C."""
    chosen = _parse(arguments)
    import_module("matplotlib")  # before minutes are spent
    benches = [each for each in BENCHES if not chosen.only or each.name in chosen.only]
    folder: Path = chosen.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _say(f"--out {folder}: {error.strerror or error}", REFUSED)
    try:
        whole = _measured(benches, Asked(chosen.quick, chosen.cpu_time), folder)
        failures = write_pictures_and_report(whole, {each.name: each.about for each in benches}, folder)
    except KeyboardInterrupt:
        return _say(f"interrupted; {folder / RESULTS} holds what was measured before.", INTERRUPTED)
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or folder}"
        return _say(f"{reason}\n{folder / RESULTS} holds what could be written before.", FAILED)
    return _end(whole, failures, folder)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [each.name for each in BENCHES]
    parser = argparse.ArgumentParser(
        prog="lamina bench all",
        description="Run every bench in this process, and write results.json, plots (PNG and SVG) and report.html.",
        epilog="benches: " + "; ".join(f"{each.name}: {each.about}" for each in BENCHES) + ".",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to; made if it is missing")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: minutes, and rougher figures")
    parser.add_argument("--only", type=_names_among(names), metavar="NAMES", help=f"some of {','.join(names)}")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    return parser.parse_args(arguments)


def _names_among(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such bench: {', '.join(unknown)}; there are {', '.join(known)}")
        return given

    return names


def _say(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


def _measured(benches: Sequence[Bench], asked: Asked, folder: Path) -> Whole:
    total = sum(each.expected(asked) for each in benches)
    with _bar(total) as tell:
        return run_all(benches, asked, tell, lambda whole: write_results(whole, folder / RESULTS))


@contextmanager
def _bar(total: float) -> Iterator[Tell]:
    """The bar on a terminal; elsewhere, a line for each step."""
    if sys.stderr.isatty() and find_spec("rich"):
        with progress_bar(total, hidden=False, with_left=True, in_seconds=True) as advance:
            yield advance
        return
    started, done = time.monotonic(), 0.0

    def tell(doing: str, by: float) -> None:
        nonlocal done
        done += by
        left = in_words(seconds_left(total, done, time.monotonic() - started, in_seconds=True))
        print(f"{done / total:4.0%}  {left} left  {doing}", file=sys.stderr)

    yield tell


def _end(whole: Whole, failures: Sequence[str], folder: Path) -> int:
    """Print the budgets, and what went wrong; the exit status."""
    lines = [Budget.from_json({**each, "text": f"{each['bench']}: {each['text']}"}) for each in whole.budgets]
    print_tables([budgets_table(lines)])
    print(f"{folder / RESULTS}\n{folder / REPORT}")
    for name in whole.failed:
        print(f"{name}: {whole.found[name].data['error']}", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    if whole.stopped:
        return _say(f"{whole.stopped}; what was measured so far is kept, and marked incomplete.", INTERRUPTED)
    return FAILED if whole.failed or failures else DONE


if __name__ == "__main__":
    raise SystemExit(main())
