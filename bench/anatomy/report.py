"""The anatomy's words: a table for each op, what its parts mean, and what could not be measured."""

from __future__ import annotations

from ..tables import Table, interval
from .parts import PARTS, REST, SUM, WHOLE
from .results import Anatomies

NOT_MEASURABLE = "not measurable"
LEGEND = "median, and in brackets the 95 % interval of it, in µs; round by round, the rest is the whole without the sum"


def tables(results: Anatomies) -> list[Table]:
    """One for each op: a row for each part, a column for each subject."""
    return [_table(results, op) for op in dict.fromkeys(op for op, _ in results.calls())]


def _table(results: Anatomies, op: str) -> Table:
    subjects = [subject for each, subject in results.calls() if each == op]
    rows = []
    for part in (*PARTS, SUM, REST, WHOLE):
        cells = [_cell(results, op, subject, part) for subject in subjects]
        if any(cells):
            rows.append([part, *cells])
    return Table(f"{op}: where the time of one layer goes (µs a call)", ["", *subjects], rows)


def _cell(results: Anatomies, op: str, subject: str, part: str) -> str:
    figure = results.of(op, subject).get(part)
    if figure is not None:
        return interval(figure.time_ns, 1e-3)
    unknown = any((each.op, each.subject, each.part) == (op, subject, part) for each in results.unmeasurable)
    return NOT_MEASURABLE if unknown else ""


def explanations(results: Anatomies) -> list[str]:
    """What the parts that are shown mean, how exact they are, and why some are not there."""
    shown = {figure.part for figure in results.figures}
    lines = [f"{part}: {meaning}" for part, meaning in PARTS.items() if part in shown]
    for op, cost in results.stand_in_ns.items():
        lines.append(f"{op}: a stand-in cost {interval(cost)} ns, and is taken off")
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for each in results.unmeasurable:
        reasons.setdefault((each.subject, each.reason), {})[each.part] = None
    lines += [f"{subject}: {', '.join(parts)}: {reason}" for (subject, reason), parts in reasons.items()]
    return [*lines, *(f"{call}: {note}" for call, notes in results.notes.items() for note in notes)]
