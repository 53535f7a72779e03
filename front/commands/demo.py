"""`lamina demo`: a small model trained in each variant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer steps and no compilation: seconds, not minutes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of the table.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for lamina-demo.json and lamina-demo.png.")] = Path(),
    seed: Annotated[int, typer.Option(help="Seeds the split, the weights and the batches.")] = 0,
) -> None:
    """Train on handwritten digits: plain, logged, int8, eager and compiled. Print accuracy, memory, time and ops."""
    from ..demo import run

    run(quick=quick, json=json, out=out, seed=seed)
