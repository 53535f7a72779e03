"""The commands of `lamina`, one module each. They parse, call the part that does the work, and print."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import bench, check, demo, op, plan, table, trace

app = typer.Typer(
    help="Wrapper tensor subclasses for PyTorch: see them work, look into them, measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("op")(op.op)
app.command("check")(check.check)
app.command("table")(table.table)
app.command("trace")(trace.trace)
app.command("plan")(plan.plan)
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lamina {__version__}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of `lamina` itself."""
