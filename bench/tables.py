"""Tables of figures: printed with rich where it is installed, as aligned text where not."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .budget import Budget
from .timing import Summary

FILE_WIDTH = 1000  # nothing is cut: a table takes what it needs
Rows = list[list[str]]


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text; the first column names the row, the others are figures."""

    title: str
    heads: list[str]
    rows: Rows


def interval(summary: Summary, unit: float = 1.0) -> str:
    """The median, and in brackets the 95 % interval of it."""
    low, high = summary.interval
    return f"{summary.median * unit:.2f} ({low * unit:.2f}-{high * unit:.2f})"


def spread(summary: Summary, unit: float = 1.0) -> str:
    """The median, plus or minus half the distance of the quartiles."""
    half = (summary.upper_quartile - summary.lower_quartile) / 2
    return f"{summary.median * unit:.2f} ±{half * unit:.2f}"


def budgets_table(budgets: Iterable[Budget]) -> Table:
    """One row for each budget: what was promised, what was found, and whether that is met."""
    rows = [
        [budget.text, budget.bound, interval(budget.measured) if budget.measured else "", budget.verdict]
        for budget in budgets
    ]
    return Table("budgets", ["", "budget", "measured", ""], rows)


def print_tables(shown: Sequence[Table]) -> None:
    """Print all tables."""
    try:
        _print_rich(shown)
    except ImportError:
        print("\n\n".join(as_text(table) for table in shown))


def _print_rich(shown: Sequence[Table]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    for table in shown:
        grid = RichTable(title=Text(table.title, style="bold"), title_justify="left", box=None, pad_edge=False)
        for number, head in enumerate(table.heads):
            grid.add_column(head, justify="right" if number else "left", no_wrap=not number, overflow="fold")
        for row in table.rows:
            grid.add_row(*(Text(cell) for cell in row))
        console.print(grid)
        console.print()


def as_text(table: Table) -> str:
    """The table as aligned plain text."""
    lines = [table.heads, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.heads))]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([table.title, *padded])
