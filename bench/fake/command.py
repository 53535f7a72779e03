"""The command `lamina bench fake`: measures, prints tables or JSON, writes the plot."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from .measuring import run, work
from .options import Options, chosen_options, parse
from .plot import write_plot
from .report import as_json, print_results
from .results import Results

INTERRUPTED = 130
"""The exit status of a shell's command that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    chosen = parse(arguments)
    if chosen.plot and not chosen.plot.resolve().parent.is_dir():
        print(f"--plot {chosen.plot}: there is no folder {chosen.plot.resolve().parent}", file=sys.stderr)
        return 2
    results = measured(chosen_options(chosen))
    if chosen.json:
        print(as_json(results))
    else:
        print_results(results)
    if chosen.plot and results.figures:
        write_plot(results, chosen.plot)
    return INTERRUPTED if results.stopped else 0


def measured(options: Options) -> Results:
    """Run with a progress bar on stderr where rich is installed; after Ctrl-C, what there is so far."""
    found: list[Results] = []
    try:
        if find_spec("rich") is None:
            return run(options, lambda doing: print(doing, file=sys.stderr), found.append)
        from ..progress import progress_bar

        with progress_bar(work(options), hidden=not sys.stderr.isatty(), with_left=True) as advance:
            return run(options, lambda doing: advance(doing, 1), found.append)
    except KeyboardInterrupt:
        if not found:
            raise
        return found[0]
