"""The layer bench's picture: cost per operation against layers, one panel an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cases import EAGER
from .picture import canvas_of, colors_of, legend_below, logarithmic, whiskers
from .results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLUMNS = 3
PANEL_INCHES = (4.2, 3.2)


def picture(results: Results) -> Canvas:
    """Microseconds a call against layers, a line a subject, whiskers for the intervals."""
    ops = list(dict.fromkeys(figure.op for figure in results.figures if figure.circumstance == EAGER.name))
    canvas, panels = canvas_of(len(ops), COLUMNS, PANEL_INCHES, 0.9)
    colors = colors_of([*results.subjects])
    for panel, op in zip(panels, ops, strict=True):
        _draw_panel(panel, results, op, colors)
    legend_below(canvas, 4)
    canvas.suptitle("Cost of one operation under layers of a tensor subclass (median; whisker: its 95 % interval)")
    return canvas


def _draw_panel(panel: Axes, results: Results, op: str, colors: dict[str, Any]) -> None:
    eager = results.eager(op)
    plain = [figure for figure in eager if figure.layers == 0]
    for subject in dict.fromkeys(figure.subject for figure in eager if figure.layers):
        line = plain + sorted((each for each in eager if each.subject == subject), key=lambda each: each.layers)
        times = [figure.time_ns for figure in line]
        whiskers(panel, [figure.layers for figure in line], times, 1e3, label=subject, color=colors[subject])
    panel.set_title(op)
    panel.set_xlabel("layers")
    panel.set_ylabel("time per call (µs)")
    logarithmic(panel)
    panel.set_xticks(range(max(figure.layers for figure in eager) + 1))
    panel.grid(alpha=0.3, which="both")
