"""The layer bench's words: its tables."""

from __future__ import annotations

from .cases import EAGER
from .results import Figure, Results
from .subjects import PLAIN
from .tables import Table, interval, spread
from .trials import Gap

LEGEND = "median ± half the distance of the quartiles; in brackets: 95 % interval of the median"


def tables(results: Results) -> list[Table]:
    """All tables of a run but the budgets, in reading order."""
    ops = list(dict.fromkeys(each.op for each in results.tried()))
    made = [table for op in ops for table in (_layers_table(results, op), _circumstances_table(results, op))]
    return [table for table in (*made, _shares_table(results)) if table.rows]


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
        [share.op, share.subject, interval(share.time_ns, 1e-3), interval(share.dispatch_share, 100.0)]
        for share in results.shares
    ]
    return Table("the share of dispatch: (wrapped - plain) / wrapped, one layer", ["", "", "µs", "%"], rows)


def _time(results: Results, op: str, subject: str, layers: int, circumstance: str = EAGER.name) -> str:
    """Median, plus or minus half the distance of the quartiles; or in a word why there is none."""
    figure, gap = (find(op, subject, layers, circumstance) for find in (results.figure, results.gap))
    if isinstance(figure, Figure):
        return spread(figure.time_ns, 1e-3)
    return gap.kind if isinstance(gap, Gap) else ""
