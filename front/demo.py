"""`lamina demo`, as a function."""

from __future__ import annotations

import sys
from pathlib import Path

from .bench import demo


def run(*, quick: bool, json: bool, out: Path, seed: int) -> None:
    """Run the demonstration; what it cannot do ends the command with one line."""
    try:
        demo.run(quick=quick, json=json, out=out, seed=seed)
    except demo.DemoError as error:
        sys.exit(f"lamina demo: {error}")
