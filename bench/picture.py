"""A plot's file: PNG or SVG, by its name; written whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from .whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120
# The same plot gives the same file: no time of day, and names of clip paths (the salt) that follow from what they clip.
METADATA = {"png": {}, "svg": {"Date": None}}


def picture_bytes(canvas: Figure, kind: str, *, transparent: bool = False) -> bytes:
    """The file's content; `kind` is png or svg."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(canvas)
    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "lamina"}):
        canvas.savefig(file, format=kind, dpi=DOTS_PER_INCH, transparent=transparent, metadata=METADATA[kind])
    return file.getvalue()


def write_picture(canvas: Figure, path: Path) -> None:
    """Write it as SVG where the name ends so, as PNG otherwise."""
    write_whole(path, picture_bytes(canvas, "svg" if path.suffix.lower() == ".svg" else "png"))
