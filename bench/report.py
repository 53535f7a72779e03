"""The bench's words: its arguments, its tables, its JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from .budgets import budgets
from .cases import CASES, EAGER
from .gaps import print_gaps
from .results import Figure, Results
from .subjects import MAX_LAYERS, PLAIN
from .tables import Table, budgets_table, interval, print_tables, spread

OPS = [case.op for case in CASES]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `lamina bench layers`."""
    parser = argparse.ArgumentParser(prog="lamina bench layers", description="Cost per operation and subclass layer.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: seconds, and rougher figures")
    parser.add_argument(
        "--op", action="append", default=[], choices=OPS, help="what to measure; repeatable; default: all"
    )
    parser.add_argument(
        "--layers", type=int, default=MAX_LAYERS, choices=range(1, MAX_LAYERS + 1), help="how deep to nest"
    )
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a PNG of cost against layers")
    return parser.parse_args(arguments)


def tables(results: Results) -> list[Table]:
    """All tables of a run, in reading order."""
    ops = list(dict.fromkeys(figure.op for figure in results.figures))
    made = [table for op in ops for table in (_layers_table(results, op), _circumstances_table(results, op))]
    return [table for table in (*made, _shares_table(results), _budgets_table(results)) if table.rows]


def _layers_table(results: Results, op: str) -> Table:
    eager = results.eager(op)
    depths = sorted({figure.layers for figure in eager} - {0})
    rows = [_layers_row(results, op, subject, depths) for subject in dict.fromkeys(figure.subject for figure in eager)]
    layers = [f"{depth} layer{'s' * (depth > 1)}" for depth in depths]
    heads = ["", "plain", *layers, "µs per layer", "1 layer / plain", "/ hand-written", "slope / hand-w."]
    return Table(f"{op} (µs a call)", heads, rows)


def _layers_row(results: Results, op: str, subject: str, depths: list[int]) -> list[str]:
    plain, first = results.figure(op, subject, 0), results.figure(op, subject, 1)
    slope = next((slope for slope in results.slopes if (slope.op, slope.subject) == (op, subject)), None)
    times = [results.figure(op, subject, depth) for depth in depths]
    return [
        subject,
        _time(plain) if plain else "",
        *("" if plain else _time(time) for time in times),
        interval(slope.ns_per_layer, 1e-3) if slope else "",
        interval(first.to_plain) if first and first.to_plain else "",
        interval(first.to_hand_written) if first and first.to_hand_written else "",
        interval(slope.to_hand_written) if slope and slope.to_hand_written else "",
    ]


def _circumstances_table(results: Results, op: str) -> Table:
    figures = [figure for figure in results.figures if figure.op == op and figure.circumstance != EAGER.name]
    subjects = list(dict.fromkeys(figure.subject for figure in figures))
    rows = []
    for circumstance in dict.fromkeys(figure.circumstance for figure in figures):
        found = [results.figure(op, subject, int(subject != PLAIN.name), circumstance) for subject in subjects]
        rows.append([circumstance, *(_time(figure) for figure in found)])
    return Table(f"{op}, called otherwise (µs a call, one layer)", ["", *subjects], rows)


def _shares_table(results: Results) -> Table:
    rows = [
        [share.op, share.subject, interval(share.time_ns, 1e-3), f"{share.dispatch_share.median:.1%}"]
        for share in results.shares
    ]
    return Table("the share of dispatch: (wrapped - plain) / wrapped, one layer", ["", "", "µs", "share"], rows)


def _budgets_table(results: Results) -> Table:
    return budgets_table([budget for budget in budgets(results) if budget.measured is not None])


def _time(figure: Figure | None) -> str:
    """Median, plus or minus half the distance of the quartiles."""
    return "gap" if figure is None else spread(figure.time_ns, 1e-3)


LEGEND = "median ± half the distance of the quartiles; in brackets: 95 % interval of the median"


def print_results(results: Results) -> None:
    """Print all tables: with rich where it is installed, as aligned text where not."""
    print(", ".join(f"{name} {value}" for name, value in results.machine.items()))
    print(LEGEND)
    print_tables(tables(results))
    print_gaps(results.gaps, results.absences)


def as_json(results: Results) -> str:
    """All figures and budgets; times are nanoseconds."""
    data = {**results.to_json(), "budgets": [budget.to_json() for budget in budgets(results)]}
    return json.dumps(data)
