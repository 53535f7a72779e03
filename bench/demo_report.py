"""The demo's words: its table and its JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .compiler import COMPILED
from .demo_results import DemoResults, Outcome, cost_line
from .ours import LOGGING
from .peers import HAND_WRITTEN
from .results import Results
from .timing import Summary

if TYPE_CHECKING:
    from rich.table import Table

FILE_WIDTH = 100
# Two lines a head, so that the table fits into 80 columns.
MODEL_HEADS = (
    "\n",
    "test\naccuracy",
    "weights\nbytes",
    "step\nµs",
    "ratio\nto plain",
    "ops\nf/b/o",
    "same\nbits",
    "compiled\nin s (n)",
)
SLOPE_HEADS = ("slope\na layer", "slope of\nhand-written", "ratio of\nslopes")
LEGEND = (
    "step: the median, models in turns, CPU time of the one thread; ±: half of its 95 % interval",
    "ops: the operators of a step's forward, backward and optimizer",
    "same bits: all losses and the trained weights are those of the model without LoggingTensor",
)


def as_json(results: DemoResults) -> str:
    """All figures."""
    return json.dumps(results.to_json(), indent=1, allow_nan=False)


def print_results(results: DemoResults, paths: Sequence[Path]) -> None:
    """Print the table, the cost of single operators, and where the files are."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False)
    console.print()
    console.print(_models_table(results))
    for note in notes(results):
        console.print(note, style="dim", markup=False)
    console.print()
    console.print(_cost_table(results.layer_cost))
    console.print("no log is in scope: this is the cost of dispatch", style="dim")
    console.print(f"\nWritten: {', '.join(map(str, paths))}", markup=False, soft_wrap=True)


def _models_table(results: DemoResults) -> Table:
    counts = f"{results.train_images} images, {results.epochs} epochs, {results.steps} steps"
    table = _grid(f"Digits ({counts}), an MLP with wrapped weights", MODEL_HEADS)
    for mode in results.modes():
        table.add_row(f"[bold]{mode}[/bold]")
        for outcome in results.outcomes:
            if outcome.mode == mode:
                table.add_row(*model_row(outcome))
    return table


def model_row(outcome: Outcome) -> list[str]:
    """The cells of one trained model."""
    same = "yes" if outcome.difference is None else "NO"
    return [
        outcome.wrapping,
        f"{outcome.accuracy:.1%}",
        f"{outcome.weight_bytes:,}",
        f"{outcome.step_ns.median / 1e3:.0f}",
        _interval(outcome.ratio_to_plain),
        "/".join(map(str, outcome.ops.values())),
        same if outcome.same_as else "",
        f"{outcome.compile_s:.1f} ({outcome.compilations})" if outcome.mode == COMPILED else "",
    ]


def _interval(summary: Summary, unit: float = 1.0) -> str:
    low, high = summary.interval
    return f"{summary.median * unit:.2f} ±{(high - low) / 2 * unit:.2f}"


def notes(results: DemoResults) -> Iterator[str]:
    """What a reader of the table has to know."""
    yield from LEGEND
    for outcome in results.outcomes:
        if outcome.difference is not None:
            yield f"{outcome.wrapping}, {outcome.mode}: {outcome.difference} differs from that of {outcome.same_as}"
    if results.not_compiled:
        yield f"eager only, nothing was compiled: {results.not_compiled}"
    else:
        yield "compiled: n graphs, by Inductor, from an empty cache that models of equal graphs share;"
        yield "the ops are those that still reach the dispatcher"


def _cost_table(results: Results) -> Table:
    """Microseconds of one op by layers of LoggingTensor, the slope, and the slope of a hand-written wrapper."""
    lines = {op: cost_line(results, op, LOGGING) for op in dict.fromkeys(figure.op for figure in results.figures)}
    deepest = max(len(line) for line in lines.values()) - 1
    layers = [f"{depth}\nlayer{'s' * (depth > 1)}" for depth in range(1, deepest + 1)]
    table = _grid("One operator under layers of LoggingTensor (µs a call)", ("\n", "\nplain", *layers, *SLOPE_HEADS))
    for op, line in lines.items():
        times = [f"{figure.time_ns.median / 1e3:.2f}" for figure in line]
        table.add_row(op, *times, *_slope_cells(results, op))
    return table


def _slope_cells(results: Results, op: str) -> list[str]:
    slopes = {slope.subject: slope for slope in results.slopes if slope.op == op}
    ours, hand_written = slopes[LOGGING], slopes[HAND_WRITTEN]
    return [
        _interval(ours.ns_per_layer, 1e-3),
        _interval(hand_written.ns_per_layer, 1e-3),
        _interval(ours.to_hand_written) if ours.to_hand_written else "",
    ]


def _grid(title: str, heads: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    return table
