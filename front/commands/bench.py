"""`lamina bench ...`: measurements, each in its own module of `lamina.bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure the cost of wrapper layers, beside their peers.", no_args_is_help=True)


@app.command("layers")
def layers(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds: seconds, and wider quartiles.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of the table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw time over layers into this PNG file.")] = None,
) -> None:
    """Time operators under 0 to 4 layers of wrapping, against hand-written and other wrappers."""
    from ..bench.layers import main

    main(quick=quick, json=json, plot=plot)


@app.callback()
def options() -> None:
    """Keeps `layers` a sub-command while it is the only one."""
