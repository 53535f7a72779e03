"""The int8 bench's picture: how many times faster than plain each way to multiply is, against the rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..picture import write_picture
from .problems import Layer
from .results import Figure, Results
from .subjects import PLAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Color = tuple[float, float, float, float]
PANEL_INCHES = (5.2, 4.0)


def write_plot(results: Results, path: Path) -> None:
    """Write the picture: SVG where the path ends so, PNG otherwise."""
    write_picture(picture(results), path)


def picture(results: Results) -> Canvas:
    """A panel for each layer and mode, a line for each subject, whiskers for the medians' intervals."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure as Canvas

    layers, modes = results.layers(), results.modes
    canvas = Canvas(figsize=(PANEL_INCHES[0] * len(modes), PANEL_INCHES[1] * len(layers) + 1.2), layout="constrained")
    panels = canvas.subplots(len(layers), len(modes), squeeze=False, sharey="row")
    colors = {subject: colormaps["tab20"](number) for number, subject in enumerate(results.subjects)}
    for row, layer in zip(panels, layers, strict=True):
        for panel, mode in zip(row, modes, strict=True):
            _draw_panel(panel, results, layer, mode, colors)
    handles = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    canvas.suptitle("A linear layer: times as fast as plain torch (median; whisker: its 95 % interval)")
    return canvas


def _draw_panel(panel: Axes, results: Results, layer: Layer, mode: str, colors: dict[str, Color]) -> None:
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
    panel.set_yscale("log")
    panel.set_xlabel("rows of the activations (M)")
    panel.set_ylabel("times as fast as plain")
    panel.grid(alpha=0.3, which="both")


def _draw_line(panel: Axes, line: list[Figure], subject: str, color: Color) -> None:
    found = [(figure.problem.rows, figure.speedup) for figure in line if figure.speedup]
    rows = [each for each, _ in found]
    medians = [speedup.median for _, speedup in found]
    below = [speedup.median - speedup.interval[0] for _, speedup in found]
    above = [speedup.interval[1] - speedup.median for _, speedup in found]
    style = ":" if subject.startswith("floor") else "-" if subject.startswith("lamina") else "--"
    panel.errorbar(
        rows, medians, yerr=[below, above], label=subject, color=color, linestyle=style, marker="o", markersize=3
    )
