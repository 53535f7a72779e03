"""The command `lamina bench int8`: measures, prints tables or JSON, writes the plot."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from .measuring import run, work
from .options import Options, chosen_options, parse
from .results import Results


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    from .plot import write_plot
    from .report import as_json, print_results

    chosen = parse(arguments)
    refused = _refusal(chosen.plot, chosen.step)
    if refused:
        print(refused, file=sys.stderr)
        return 2  # before minutes are spent
    results = measured(chosen_options(chosen))
    if chosen.json:
        print(as_json(results))
    else:
        print_results(results)
    if chosen.plot and results.figures:
        write_plot(results, chosen.plot)
    elif chosen.plot:
        print(f"--plot {chosen.plot}: nothing to draw, no figure was found", file=sys.stderr)
    return 0


def _refusal(plot: Path | None, step: bool) -> str | None:
    if plot is None:
        return None
    if step:
        return f"--plot {plot}: the picture is of the products, which --step leaves out"
    folder = plot.resolve().parent
    return None if folder.is_dir() else f"--plot {plot}: there is no folder {folder}"


def measured(options: Options) -> Results:
    """Run with a progress bar on stderr where rich is installed; stdout holds the tables or the JSON alone."""
    if find_spec("rich") is None:
        return run(options, lambda doing, by: print(doing, file=sys.stderr) if by else None)
    from ..progress import progress_bar

    with progress_bar(work(options), hidden=not sys.stderr.isatty()) as progress:
        return run(options, progress)
