"""The words of `lamina check`: its table, what failed and why, and the list of all checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..conformance import Report, Result, Status, every_check
from ..conformance.report import printable

FILE_WIDTH = 100
STYLES = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.KNOWN_LIMIT: "yellow",
    Status.NOT_APPLICABLE: "dim",
}


def print_report(report: Report, *, json: bool) -> None:
    """Print the table, then each failure with its detail, each known limit with its reason, and how many there are."""
    if json:
        print(report.to_json())
        return
    console = _console()
    console.print(_table(report.results))
    for line in _findings(report):
        console.print(line, soft_wrap=True)
    console.print()
    if report.coverage is not None:
        console.print(f"operator samples: {report.coverage}", soft_wrap=True)
    console.print(Text(printable(report.headline()), style="bold"), soft_wrap=True)


def print_list() -> None:
    """Print the checks by group: what each checks, and the symptom that was reported."""
    console = _console()
    for group, checks in groupby(every_check(), lambda each: each.group):
        console.print(Text(group, style="bold"))
        for each in checks:
            slow = "" if each.quick else "  (in a full run)"
            console.print(Text(f"  {each.name}{slow}"), soft_wrap=True)
            console.print(Text(f"    {' '.join(each.text.split())}"), soft_wrap=True)
            console.print(Text(f"    reported: {each.reported}", style="dim"), soft_wrap=True)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False)


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head, justify in (("group", "left"), ("check", "left"), ("status", "left"), ("seconds", "right")):
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for group, members in groupby(results, lambda each: each.group):
        for number, each in enumerate(members):
            status = Text(each.status.value, style=STYLES[each.status])
            table.add_row("" if number else group, each.name, status, f"{each.seconds:.2f}")
    return table


def _findings(report: Report) -> Iterator[Text]:
    for status in (Status.FAIL, Status.KNOWN_LIMIT):
        for each in report.of(status):
            yield Text(f"\n{status.value} {each.id}: {each.reported}", style=STYLES[status])
            for line in printable(each.detail).splitlines():
                yield Text(f"  {line}")
