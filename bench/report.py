"""The bench's words: its arguments, its tables, its JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .results import Figure, Results
from .subjects import MAX_LAYERS
from .timing import Summary

Rows = list[list[str]]


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text; the first column names the row, the others are figures."""

    title: str
    heads: list[str]
    rows: Rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `lamina bench layers`."""
    parser = argparse.ArgumentParser(prog="lamina bench layers", description="Cost per operation and subclass layer.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: seconds, and rougher figures")
    parser.add_argument("--op", action="append", default=[], help="an operation to measure; repeatable; default: all")
    parser.add_argument("--layers", type=int, default=MAX_LAYERS, choices=range(1, MAX_LAYERS + 1), help="deepest nesting")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures to this file")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a PNG of cost against layers")
    return parser.parse_args(arguments)


def tables(results: Results) -> list[Table]:
    """All tables of a run, in reading order."""
    ops = list(dict.fromkeys(figure.op for figure in results.figures))
    shown = [table for op in ops for table in (_layers_table(results, op), _circumstances_table(results, op)) if table.rows]
    if results.shares:
        shown.append(_shares_table(results))
    if results.gaps or results.absences:
        shown.append(_gaps_table(results))
    return shown


def _layers_table(results: Results, op: str) -> Table:
    eager = [figure for figure in results.figures if figure.op == op and figure.circumstance == "eager"]
    depths = sorted({figure.layers for figure in eager} - {0})
    slopes = {slope.subject: slope for slope in results.slopes if slope.op == op}
    rows = []
    for subject in dict.fromkeys(figure.subject for figure in eager):
        first = results.figure(op, subject, 1) or results.figure(op, subject, 0)
        row = [subject, *(_time(results.figure(op, subject, depth)) for depth in depths)]
        if first is not None and first.layers == 0:
            row = [subject, _time(first), *[""] * (len(depths) - 1)]
        slope = slopes.get(subject)
        row.append(_microseconds(slope.ns_per_layer) if slope else "")
        row.append(_ratio(first.to_plain if first else None))
        row.append(_ratio(first.to_hand_written if first else None))
        row.append(_ratio(slope.to_hand_written if slope else None))
        rows.append(row)
    heads = ["", *(f"{depth} layer{'s' * (depth > 1)}" for depth in depths), "per layer"]
    return Table(
        f"{op}: microseconds a call, median [quartiles]; per layer: slope [95 %]; ratios at 1 layer [95 %]",
        [*heads, "/ plain", "/ hand-written", "slope / hand-w."],
        rows,
    )


def _circumstances_table(results: Results, op: str) -> Table:
    figures = [figure for figure in results.figures if figure.op == op and figure.circumstance != "eager"]
    subjects = list(dict.fromkeys(figure.subject for figure in figures))
    rows = []
    for circumstance in dict.fromkeys(figure.circumstance for figure in figures):
        found = [results.figure(op, subject, int(subject != "plain"), circumstance) for subject in subjects]
        rows.append([circumstance, *(_time(figure) for figure in found)])
    return Table(f"{op}, otherwise called: microseconds, one layer", ["", *subjects], rows)


def _shares_table(results: Results) -> Table:
    rows = [
        [f"{share.op}: {share.subject}", _microseconds(share.time_ns), f"{share.dispatch_share.median:.1%}"]
        for share in results.shares
    ]
    return Table("share of dispatch in a forward, one layer", ["", "microseconds", "share"], rows)


def _gaps_table(results: Results) -> Table:
    rows = [[f"{gap.op}: {gap.subject}", f"{gap.layers}", gap.circumstance, gap.reason] for gap in results.gaps]
    rows += [[absence.subject, "", "", absence.reason] for absence in results.absences]
    return Table("gaps", ["", "layers", "circumstance", "reason"], rows)


def _time(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    time = figure.time_ns
    return f"{time.median / 1e3:.2f} [{time.lower_quartile / 1e3:.2f}-{time.upper_quartile / 1e3:.2f}]"


def _microseconds(summary: Summary) -> str:
    low, high = summary.interval
    return f"{summary.median / 1e3:.2f} [{low / 1e3:.2f}-{high / 1e3:.2f}]"


def _ratio(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    return f"{summary.median:.2f} [{summary.interval[0]:.2f}-{summary.interval[1]:.2f}]"


def print_results(results: Results) -> None:
    """Print all tables: with rich where it is installed, as aligned text where not."""
    print("  ".join(f"{name}: {value}" for name, value in results.machine.items()))
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        print("\n\n".join(as_text(table) for table in tables(results)))
        return
    console = Console()
    for table in tables(results):
        shown = RichTable(title=table.title, title_justify="left")
        for number, head in enumerate(table.heads):
            shown.add_column(head, justify="right" if number else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown, markup=False)


def as_text(table: Table) -> str:
    """The table as aligned plain text."""
    lines = [table.heads, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.heads))]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([table.title, *padded])


def write_json(results: Results, path: Path) -> None:
    """Write all figures; times are nanoseconds."""
    path.write_text(json.dumps(results.to_json(), indent=1) + "\n")
