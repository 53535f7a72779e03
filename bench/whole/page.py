"""The report: one HTML file that holds all it shows, and loads nothing."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from ..budget import Budget
from ..picture import picture_bytes
from ..tables import Table
from .bench import Found
from .gauge import gauge
from .running import Whole
from .style import SCRIPT, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

WORDS = ' class="words"'
CLASSES = {True: "met", False: "not", None: "none"}
LEGEND = (
    "Times are medians; ± is half the distance of the quartiles, brackets hold the 95 % interval of the median. "
    "Variants took turns in one process, on one thread, and ratios were formed within a round."
)


def page(
    whole: Whole,
    about: Mapping[str, str],
    canvases: Mapping[str, Mapping[str, Canvas]],
    failures: Iterable[str] = (),
) -> str:
    """The whole file. `about` says of each bench what it measures; `failures`, which pictures could not be drawn."""
    lines = [(each["bench"], Budget.from_json(each)) for each in whole.budgets]
    sections = [
        _head(whole, [budget for _, budget in lines]),
        _section("budgets", "Budgets", [_budgets(lines)]),
        *(
            _section(name, f"{name}: {about[name]}", _bench(found, canvases.get(name, {})))
            for name, found in whole.found.items()
        ),
        _section("gaps", "What is missing, and why", _gaps(whole, failures)),
        _section("machine", "Machine", [_machine(whole)]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>lamina bench, {whole.date}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(sections)
        + f"\n<script>{SCRIPT}</script></body></html>\n"
    )


def _section(name: str, title: str, parts: Iterable[str]) -> str:
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>\n' + "\n".join(parts) + "</section>"


def _head(whole: Whole, budgets: list[Budget]) -> str:
    counts = Counter(budget.met for budget in budgets)
    words = {True: "budgets met", False: "not met", None: "not measured"}
    tiles = [f'<div class="tile {CLASSES[met]}"><b>{counts[met]}</b>{text}</div>' for met, text in words.items()]
    names = ["budgets", *whole.found, "gaps", "machine"]
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)
    machine = "{processor}, {cpu_capability}, PyTorch {torch}, Python {python}".format(**whole.machine)
    return (
        "<header><h1>What tensor subclasses cost</h1>"
        f'<p class="soft">lamina bench, {whole.date}. {escape(machine)}.</p>'
        f'{_notes(whole)}<div class="tiles">{"".join(tiles)}</div><nav>{links}</nav></header>'
    )


def _notes(whole: Whole) -> str:
    """What keeps the figures from being the whole, or from being good."""
    notes = [f"Incomplete: {whole.stopped}." if whole.stopped else ""]
    notes.append(f"Failed: {', '.join(whole.failed)}." if whole.failed and not whole.stopped else "")
    notes.append("Measured with --quick: fewer rounds, rougher figures." if whole.asked.quick else "")
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)


def _budgets(lines: list[tuple[str, Budget]]) -> str:
    heads = ["bench", "what", "budget", "measured", "95 % interval", "half &middot; bound &middot; twice", "met or not"]
    head = "".join(f"<th{WORDS * (each == 'what')}>{each}</th>" for each in heads)
    return _grid(head, "".join(_budget_row(bench, budget) for bench, budget in lines))


def _budget_row(bench: str, budget: Budget) -> str:
    kind, measured = CLASSES[budget.met], budget.measured
    median, interval = "", ""
    if measured:
        median, interval = f"{measured.median:.2f}", "{:.2f}&ndash;{:.2f}".format(*measured.interval)
    return (
        f"<tr><td>{escape(bench)}</td><td{WORDS}>{escape(budget.text)}</td><td>{_bound(budget)}</td>"
        f"<td>{median}</td><td>{interval}</td><td>{gauge(budget)}</td>"
        f'<td class="{kind}">{budget.verdict}</td></tr>\n'
    )


def _bound(budget: Budget) -> str:
    return escape(budget.bound).replace("&lt;=", "&le;").replace("&gt;=", "&ge;")


def _bench(found: Found, canvases: Mapping[str, Canvas]) -> Iterator[str]:
    if "error" in found.data:
        yield f'<p class="note">{escape(found.data["error"])}</p>'
        if found.data["traceback"]:
            yield f"<details><summary>where</summary><pre>{escape(found.data['traceback'])}</pre></details>"
    for name, canvas in canvases.items():
        yield _figure(f"plot: {name}", canvas)
    if found.tables:
        yield f'<p class="soft">{LEGEND}</p>'
    for number, table in enumerate(found.tables):
        yield f"<details{'' if number else ' open'}><summary>{escape(table.title)}</summary>{_table(table)}</details>"
    if found.notes:
        yield f"<details><summary>how to read it</summary>{_list(found.notes)}</details>"


def _figure(title: str, canvas: Canvas) -> str:
    data = base64.b64encode(picture_bytes(canvas, "svg", transparent=True)).decode()
    return f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in table.heads)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in table.rows)
    return _grid(head, "".join(f"<tr>{row}</tr>\n" for row in rows))


def _grid(head: str, rows: str) -> str:
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll"><table class="sortable">{inside}</table></div>'


def _gaps(whole: Whole, failures: Iterable[str]) -> Iterator[str]:
    lines = {name: found.data.get("gap_lines", []) for name, found in whole.found.items()}
    lines["plots"] = list(failures)
    if not any(lines.values()):
        yield "<p>Nothing.</p>"
    for name, found in lines.items():
        if found:
            yield f"<p>{escape(name)}</p>{_list(found)}"


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _machine(whole: Whole) -> str:
    items = {**whole.machine, "date": whole.date, "clock": "CPU time" if whole.asked.cpu_time else "wall time"}
    inside = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(each))}</dd>" for key, each in items.items())
    return f"<dl>{inside}</dl>"
