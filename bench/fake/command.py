"""The command `lamina bench fake`: measures, prints tables or JSON, writes the plot."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..kept import INTERRUPTED, kept
from .measuring import run, work
from .options import Options, chosen_options, parse
from .plot import write_plot
from .report import as_json, print_results
from .results import Results


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
    """Run with a progress bar on stderr; after Ctrl-C, what there is so far."""
    return kept(lambda advance, begun: run(options, lambda doing: advance(doing, 1), begun), work(options))
