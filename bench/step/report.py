"""The step bench's words: its tables and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..tables import Rows, Table, interval, spread
from .growth import compile_slope, lines
from .models import SMALL
from .results import Figure, Results
from .split import PARAMETERS, PARTS

LEGEND = (
    "ms: median ± half the distance of the quartiles; in brackets: 95 % interval of the median\n"
    "x plain: times the same step with plain weights, paired by round; µs: added by wrapped parameter and layer\n"
    "compile: seconds, once, without a C++ compiler's; peak: most bytes alive over before"
)


def tables(results: Results) -> list[Table]:
    """All tables of a run but the budgets, in reading order."""
    found = [*(_group_table(group) for group in results.groups())]
    found += [_slopes_table(results), _compile_table(results), _split_table(results), _overheads_table(results)]
    return [table for table in found if table.rows]


def _group_table(group: Sequence[Figure]) -> Table:
    """One row for each number of parameters and wrapping."""
    first = group[0]
    sized = "" if (first.width, first.batch) == (SMALL.width, SMALL.batch) else f" {first.width}, batch {first.batch}"
    heads = ["", "ms", "x plain", "µs a parameter and layer", "guards µs", "compile s", "graphs", "again", "peak kB"]
    rows = [list(_cells(figure)) for figure in group]
    return Table(f"{first.model}{sized}, {first.optimizer}, {first.mode}", heads, rows)


def _cells(figure: Figure) -> Iterator[str]:
    layers = f" x{figure.layers}" if figure.layers else ""
    yield f"{figure.parameters}, {figure.subject}{layers}"
    yield spread(figure.time_ns, 1e-6)
    yield interval(figure.to_plain) if figure.to_plain else ""
    yield interval(figure.added_ns, 1e-3) if figure.added_ns else ""
    yield spread(figure.guards_ns, 1e-3) if figure.guards_ns else ""
    yield f"{figure.compile_ns / 1e9:.2f}" if figure.graphs else ""
    yield str(figure.graphs or "")
    yield str(figure.recompiled or "")
    yield f"{figure.peak_bytes / 1e3:,.0f}"


def _slopes_table(results: Results) -> Table:
    rows = [
        [each.name, ", ".join(map(str, each.points)), interval(each.time_ns, 1e-3), f"{each.straight:.3f}"]
        for each in results.slopes
    ]
    heads = ["", "measured at", "µs by parameter (and layer)", "r²"]
    return Table("growth of the step: slopes of least-squares lines", heads, rows)


def _compile_table(results: Results) -> Table:
    rows: Rows = []
    for line in (line for group in results.groups() for line in lines(group)):
        seconds = compile_slope(line)
        if seconds is not None:
            points = ", ".join(map(str, sorted(line.points)))
            rows.append([f"{line.name} | along {line.along}", points, f"{seconds * 1e3:.1f}"])
    return Table("growth of compile time", ["", "measured at", "ms by parameter or layer"], rows)


def _split_table(results: Results) -> Table:
    title = f"compiled forward and backward, {PARAMETERS} wrapped parameters: µs added by parameter and layer"
    rows = [
        [f"{each.subject} x{each.layers}", *(interval(each.parts_ns[part], 1e-3) for part in PARTS)]
        for each in results.splits
    ]
    return Table(title, ["", *PARTS], rows)


def _overheads_table(results: Results) -> Table:
    rows = [
        [each.subject, f"{each.python:,.0f}", "" if each.native is None else f"{each.native:,.0f}"]
        for each in results.overheads
    ]
    return Table("memory of a wrapped parameter over a plain one: bytes", ["", "Python's objects", "malloc"], rows)
