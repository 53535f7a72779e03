"""The fake bench's words: its tables and its JSON."""

from __future__ import annotations

from ..tables import Table, interval, spread
from .cases import OPERATOR, STEP
from .results import Results
from .subjects import FAKE_TENSOR, FLOOR, PLAIN

LEGEND = (
    "µs: median ± half the distance of the quartiles; in brackets: 95 % interval of the median, paired by round\n"
    "every signature was seen before; tensors of 8 x 8, models of width 16\n"
    f"{FLOOR}: as a wrapper class in Python would be that has nothing to find out, under a function mode"
)


def tables(results: Results) -> list[Table]:
    """All tables of a run but the budgets, in reading order."""
    return [table for table in (_table(results, kind) for kind in (OPERATOR, STEP)) if table.rows]


def _table(results: Results, kind: str) -> Table:
    rows = []
    for figure in results.figures:
        if figure.kind == kind:
            faster = results.ratio(kind, figure.what, FAKE_TENSOR, figure.subject)
            real = results.ratio(kind, figure.what, figure.subject, PLAIN)
            cells = [interval(faster) if faster else "", interval(real) if real else ""]
            rows.append([f"{figure.what}, {figure.subject}", spread(figure.time_ns, 1e-3), *cells])
    return Table(f"one {kind}", ["", "µs", f"times as fast as {FAKE_TENSOR}", "x plain"], rows)
