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
from .trials import Gap

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
    parser.add_argument(
        "--class", dest="cls", metavar="MODULE:CLASS", help="your tensor subclass, beside plain, hand-written and ours"
    )
    parser.add_argument("--make", metavar="MODULE:FUNCTION", help="builds one of a plain tensor; default: from_plain")
    parser.add_argument("--rtol", type=float, help="how far off its results may be, relative to the largest value")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead, by perf or callgrind")
    parser.add_argument("--anatomy", action="store_true", help="where the time of one layer goes, part by part")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write the picture, as PNG or SVG by suffix")
    chosen = parser.parse_args(arguments)
    if (chosen.make or chosen.rtol is not None) and not chosen.cls:
        parser.error("--make and --rtol are about a class: give --class, too")
    return chosen


def tables(results: Results) -> list[Table]:
    """All tables of a run, in reading order."""
    ops = list(dict.fromkeys(each.op for each in results.tried()))
    made = [table for op in ops for table in (_layers_table(results, op), _circumstances_table(results, op))]
    return [table for table in (*made, _shares_table(results), _budgets_table(results)) if table.rows]


def _layers_table(results: Results, op: str) -> Table:
    tried = results.tried(op)
    depths = sorted({each.layers for each in tried if each.circumstance == EAGER.name} - {0})
    subjects = [name for name in results.subjects if any(each.subject == name for each in tried)]
    rows = [_layers_row(results, op, subject, depths) for subject in subjects]
    layers = [f"{depth} layer{'s' * (depth > 1)}" for depth in depths]
    heads = ["", "plain", *layers, "µs per layer", "1 layer / plain", "/ hand-written", "slope / hand-w."]
    return Table(f"{op} (µs a call)", heads, rows)


def _layers_row(results: Results, op: str, subject: str, depths: list[int]) -> list[str]:
    first = results.figure(op, subject, 1)
    slope = next((slope for slope in results.slopes if (slope.op, slope.subject) == (op, subject)), None)
    return [
        subject,
        *(_time(results, op, subject, depth) for depth in (0, *depths)),
        interval(slope.ns_per_layer, 1e-3) if slope else "",
        interval(first.to_plain) if first and first.to_plain else "",
        interval(first.to_hand_written) if first and first.to_hand_written else "",
        interval(slope.to_hand_written) if slope and slope.to_hand_written else "",
    ]


def _circumstances_table(results: Results, op: str) -> Table:
    tried = [each for each in results.tried(op) if each.circumstance != EAGER.name]
    subjects = [name for name in results.subjects if any(each.subject == name for each in tried)]
    rows = []
    for circumstance in dict.fromkeys(each.circumstance for each in tried):
        times = [_time(results, op, subject, int(subject != PLAIN.name), circumstance) for subject in subjects]
        rows.append([circumstance, *times])
    return Table(f"{op}, called otherwise (µs a call, one layer)", ["", *subjects], rows)


def _shares_table(results: Results) -> Table:
    rows = [
        [share.op, share.subject, interval(share.time_ns, 1e-3), f"{share.dispatch_share.median:.1%}"]
        for share in results.shares
    ]
    return Table("the share of dispatch: (wrapped - plain) / wrapped, one layer", ["", "", "µs", "share"], rows)


def _budgets_table(results: Results) -> Table:
    return budgets_table([budget for budget in budgets(results) if budget.measured is not None])


def _time(results: Results, op: str, subject: str, layers: int, circumstance: str = EAGER.name) -> str:
    """Median, plus or minus half the distance of the quartiles; or in a word why there is none."""
    figure, gap = (find(op, subject, layers, circumstance) for find in (results.figure, results.gap))
    if isinstance(figure, Figure):
        return spread(figure.time_ns, 1e-3)
    return gap.kind if isinstance(gap, Gap) else ""


LEGEND = "median ± half the distance of the quartiles; in brackets: 95 % interval of the median"


def print_results(results: Results) -> None:
    """Print all tables: with rich where it is installed, as aligned text where not."""
    print(", ".join(f"{name} {value}" for name, value in results.machine.items()))
    print(LEGEND)
    print_tables(tables(results))
    for name in results.asked_for:
        print(f"{name}: {results.subjects[name]}")
    print_gaps(results.gaps, results.absences)


def as_json(results: Results) -> str:
    """All figures and budgets; times are nanoseconds."""
    data = {**results.to_json(), "budgets": [budget.to_json() for budget in budgets(results)]}
    return json.dumps(data)
