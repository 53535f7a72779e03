"""The demo's words: its table and its JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .demo_results import DemoResults, Outcome, cost_line
from .demo_trainee import COMPILED
from .peers import HAND_WRITTEN
from .results import Results
from .timing import Summary

if TYPE_CHECKING:
    from rich.table import Table

FILE_WIDTH = 140
HEADS = ("", "accuracy", "weights", "step", "ratio to plain", "ops", "bit for bit", "compiled in")
UNITS = ("", "on the test", "bytes", "µs", "(95 % interval)", "fwd bwd opt", "the same as", "s (graphs)")


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
    console.print(
        "LoggingTensor with no log in scope: dispatch alone. In brackets: the median's 95 % interval.", style="dim"
    )
    console.print(f"\nWritten: {', '.join(map(str, paths))}", markup=False, soft_wrap=True)


def _models_table(results: DemoResults) -> Table:
    title = (
        f"{results.train_images} images of digits, {results.epochs} epochs, {results.steps} steps: "
        "an MLP with its weights wrapped"
    )
    table = _grid(title)
    for head, unit in zip(HEADS, UNITS, strict=True):
        table.add_column(f"{head}\n{unit}", justify="right" if head else "left", no_wrap=True)
    for mode in results.modes():
        table.add_row(f"[bold]{mode}[/bold]")
        for outcome in results.outcomes:
            if outcome.mode == mode:
                table.add_row(*model_row(outcome))
    return table


def model_row(outcome: Outcome) -> list[str]:
    """The cells of one trained model."""
    return [
        f"  {outcome.wrapping}",
        f"{outcome.accuracy:.1%}",
        f"{outcome.weight_bytes:,}",
        f"{outcome.step_ns.median / 1e3:.0f}",
        _ratio(outcome.ratio_to_plain),
        " ".join(f"{count:3}" for count in outcome.ops.values()),
        _sameness(outcome),
        f"{outcome.compile_s:.1f} ({outcome.compilations})" if outcome.mode == COMPILED else "",
    ]


def _ratio(ratio: Summary) -> str:
    low, high = ratio.interval
    return f"{ratio.median:.2f} ({low:.2f}-{high:.2f})"


def _sameness(outcome: Outcome) -> str:
    if outcome.same_as is None:
        return ""
    return f"{outcome.same_as}: {'yes' if outcome.difference is None else f'no, {outcome.difference}'}"


def notes(results: DemoResults) -> Iterator[str]:
    """What a reader of the table has to know."""
    yield "Medians of steps in turns; CPU time of the one thread. Bit for bit: all steps' losses, the trained weights."
    if results.not_compiled:
        yield f"Eager only, nothing was compiled: {results.not_compiled}"
    else:
        yield (
            "Compiled: by Inductor, from an empty cache that models of equal graphs share. "
            "Ops: those that still reach the dispatcher."
        )


def _cost_table(results: Results) -> Table:
    """Microseconds of one op by layers of LoggingTensor, the slope, and the slope of a hand-written wrapper."""
    from .ours import LOGGING

    table = _grid("One op under layers of LoggingTensor (µs a call)")
    lines = {op: cost_line(results, op, LOGGING) for op in dict.fromkeys(figure.op for figure in results.figures)}
    deepest = max(len(line) for line in lines.values())
    for head in ("", "plain", *_layer_heads(deepest - 1), "slope a layer", "hand-written wrapper's slope", "ratio"):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for op, line in lines.items():
        times = [f"{figure.time_ns.median / 1e3:.2f}" for figure in line]
        table.add_row(f"  {op}", *times, *_slope_cells(results, op, LOGGING))
    return table


def _layer_heads(deepest: int) -> list[str]:
    return [f"{layers} layer{'s' * (layers > 1)}" for layers in range(1, deepest + 1)]


def _slope_cells(results: Results, op: str, subject: str) -> list[str]:
    slopes = {slope.subject: slope for slope in results.slopes if slope.op == op}
    to_hand = slopes[subject].to_hand_written
    return [
        *(_ratio(_microseconds(slopes[name].ns_per_layer)) for name in (subject, HAND_WRITTEN)),
        _ratio(to_hand) if to_hand else "",
    ]


def _microseconds(nanoseconds: Summary) -> Summary:
    low, high = nanoseconds.interval
    return Summary(
        nanoseconds.median / 1e3,
        nanoseconds.lower_quartile / 1e3,
        nanoseconds.upper_quartile / 1e3,
        (low / 1e3, high / 1e3),
    )


def _grid(title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    return Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
