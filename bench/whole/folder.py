"""The folder that `lamina bench all` fills: results, plots, report. Each file is written whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..picture import write_picture
from ..trials import reason_of
from ..whole_file import write_whole
from .page import page
from .running import Whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

RESULTS, REPORT = "results.json", "report.html"


def write_pictures_and_report(whole: Whole, about: dict[str, str], folder: Path) -> list[str]:
    """Write them; the reasons for pictures that could not be drawn, which stand in the report, too."""
    canvases: dict[str, dict[str, Canvas]] = {}
    failures = []
    for bench, found in whole.found.items():
        for name, draw in found.pictures.items():
            try:
                canvases.setdefault(bench, {})[name] = draw()
            except Exception as error:  # noqa: BLE001  # reported; the figures themselves are there
                failures.append(f"{bench}: no picture {name}: {reason_of(error)}")
    write_whole(folder / REPORT, page(whole, about, canvases, failures).encode())
    for bench, drawn in canvases.items():
        for name, canvas in drawn.items():
            stem = bench if name == bench else f"{bench}-{name}"
            write_picture(canvas, folder / f"{stem}.png")
            write_picture(canvas, folder / f"{stem}.svg")
    return failures
