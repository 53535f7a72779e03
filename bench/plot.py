"""The bench's picture: cost per operation against layers, one panel an operation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .cases import EAGER
from .picture import write_picture
from .results import Figure, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLUMNS = 3
PANEL_INCHES = (4.2, 3.2)


def write_plot(results: Results, path: Path) -> None:
    """Write the picture: SVG where the path ends so, PNG otherwise."""
    write_picture(picture(results), path)


def picture(results: Results) -> Canvas:
    """Microseconds a call against layers, a line a subject, the band between the quartiles."""
    from matplotlib.figure import Figure as Canvas

    ops = list(dict.fromkeys(figure.op for figure in results.figures if figure.circumstance == EAGER.name))
    rows = math.ceil(len(ops) / COLUMNS)
    columns = min(COLUMNS, len(ops))
    canvas = Canvas(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.9), layout="constrained")
    panels = list(canvas.subplots(rows, columns, squeeze=False).flat)
    colors = _colors(results)
    for panel, op in zip(panels, ops, strict=False):
        _draw_panel(panel, results, op, colors)
    for unused in panels[len(ops) :]:
        unused.set_visible(False)
    handles = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    canvas.suptitle("Cost of one operation under layers of a tensor subclass (median; band: quartiles)")
    return canvas


def _colors(results: Results) -> dict[str, str]:
    return {subject: f"C{number}" for number, subject in enumerate(results.subjects)}


def _draw_panel(panel: Axes, results: Results, op: str, colors: dict[str, str]) -> None:
    eager = results.eager(op)
    plain = [figure for figure in eager if figure.layers == 0]
    for subject in dict.fromkeys(figure.subject for figure in eager if figure.layers):
        line = plain + sorted((each for each in eager if each.subject == subject), key=lambda each: each.layers)
        _draw_line(panel, line, subject, colors[subject])
    panel.set_title(op)
    panel.set_xlabel("layers")
    panel.set_ylabel("time per call (µs)")
    panel.set_yscale("log")
    panel.set_xticks(range(max(figure.layers for figure in eager) + 1))
    panel.grid(alpha=0.3, which="both")


def _draw_line(panel: Axes, line: list[Figure], subject: str, color: str) -> None:
    layers = [figure.layers for figure in line]
    panel.plot(
        layers, [figure.time_ns.median / 1e3 for figure in line], marker="o", markersize=3, label=subject, color=color
    )
    lower = [figure.time_ns.lower_quartile / 1e3 for figure in line]
    upper = [figure.time_ns.upper_quartile / 1e3 for figure in line]
    panel.fill_between(layers, lower, upper, alpha=0.2, color=color)
