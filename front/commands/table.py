"""`lamina table module:Class [op]`: how a class answers operators."""

from __future__ import annotations

from typing import Annotated

import typer

from ..subclasses.core.table import op_table
from .target import load_class, load_op


def table(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A wrapper class, such as lamina:LoggingTensor.")
    ],
    op: Annotated[str | None, typer.Argument(metavar="OP", help="One overload, such as aten.mm.default.")] = None,
) -> None:
    """Print the op table of a class: op, kind, how it was resolved, file and line. With OP, resolve that one."""
    cls = load_class(target)
    entries = op_table(cls)
    typer.echo(entries if op is None else entries[load_op(op)])
