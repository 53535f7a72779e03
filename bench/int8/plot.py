"""The int8 bench's picture: how many times faster than plain each way to multiply is, against the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..picture import colors_of, legend_below, logarithmic, whiskers
from .problems import Layer
from .results import Figure, Results
from .subjects import PLAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANEL_INCHES = (5.2, 4.0)


def picture(results: Results) -> Canvas:
    """A panel for each layer and mode, a line for each subject, whiskers for the medians' intervals."""
    from matplotlib.figure import Figure as Canvas

    layers, modes = results.layers(), results.modes
    canvas = Canvas(figsize=(PANEL_INCHES[0] * len(modes), PANEL_INCHES[1] * len(layers) + 1.2), layout="constrained")
    panels = canvas.subplots(len(layers), len(modes), squeeze=False, sharey="row")
    colors = colors_of([*results.subjects])
    for row, layer in zip(panels, layers, strict=True):
        for panel, mode in zip(row, modes, strict=True):
            _draw_panel(panel, results, layer, mode, colors)
    legend_below(canvas, 3)
    canvas.suptitle("A linear layer: times as fast as plain torch (median; whisker: its 95 % interval)")
    return canvas


def _draw_panel(panel: Axes, results: Results, layer: Layer, mode: str, colors: dict[str, Any]) -> None:
    for subject, color in colors.items():
        line = [
            figure
            for figure in results.figures
            if figure.problem.layer == layer and (figure.subject, figure.mode) == (subject, mode)
        ]
        if line and subject != PLAIN:
            _draw_line(panel, sorted(line, key=lambda figure: figure.problem.rows), subject, color)
    rows = sorted({problem.rows for problem in results.problems()})
    panel.axhline(1, color="black", linewidth=0.8, linestyle=":")
    panel.set_title(f"{layer.name}, {mode}")
    panel.set_xscale("log", base=2)
    panel.set_xticks(rows, map(str, rows))
    logarithmic(panel)
    panel.set_xlabel("rows of the activations (M)")
    panel.set_ylabel("times as fast as plain")
    panel.grid(alpha=0.3, which="both")


def _draw_line(panel: Axes, line: list[Figure], subject: str, color: Any) -> None:
    found = [(figure.problem.rows, figure.speedup) for figure in line if figure.speedup]
    style = ":" if subject.startswith("floor") else "-" if subject.startswith("lamina") else "--"
    rows, speedups = [each for each, _ in found], [speedup for _, speedup in found]
    whiskers(panel, rows, speedups, 1, label=subject, color=color, linestyle=style)
