"""The step bench's picture: how step and compile time grow with wrapped parameters and with layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ours import LOGGING
from ..picture import legend_below, whiskers
from ..subjects import PLAIN
from .models import SMALL
from .results import Figure, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANEL_INCHES = (4.6, 3.6)


def picture(results: Results) -> Canvas:
    """A row for each mode that was measured at several numbers of parameters: step against parameters, step against
    layers, compile time against parameters."""
    from matplotlib.figure import Figure as Canvas

    groups = growing(results)
    canvas = Canvas(figsize=(PANEL_INCHES[0] * 3, PANEL_INCHES[1] * len(groups) + 0.8), layout="constrained")
    for row, group in zip(canvas.subplots(len(groups), 3, squeeze=False), groups, strict=True):
        _draw_parameters(row[0], group)
        _draw_layers(row[1], group)
        _draw_compile_time(row[2], group)
    legend_below(canvas, 3)
    canvas.suptitle("A training step with wrapped weights (median; whisker: its 95 % interval)")
    return canvas


def growing(results: Results) -> list[list[Figure]]:
    """The groups with several numbers of parameters; all groups of narrow models where there is none."""
    small = [group for group in results.groups() if group[0].width == SMALL.width]
    several = [group for group in small if len({each.parameters for each in group}) > 1]
    return several or small or results.groups()


def _lines(group: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Figures by wrapping, in the order of their parameters."""
    found: dict[str, list[Figure]] = {}
    for figure in sorted(group, key=lambda each: each.parameters):
        label = f"{figure.subject} x{figure.layers}" if figure.layers else figure.subject
        found.setdefault(label, []).append(figure)
    return found


def _draw_parameters(panel: Axes, group: Sequence[Figure]) -> None:
    for label, line in _lines(group).items():
        whiskers(panel, [each.parameters for each in line], [each.time_ns for each in line], 1e6, label=label)
    _logarithmic(panel, group)
    panel.set_ylabel("time of a step (ms)")
    panel.set_title(_title(group))


def _draw_layers(panel: Axes, group: Sequence[Figure]) -> None:
    for parameters in sorted({each.parameters for each in group}):
        line = [each for each in group if each.parameters == parameters and each.subject in (LOGGING, PLAIN.name)]
        line.sort(key=lambda each: each.layers)
        added = [each for each in line if each.added_ns]
        xs, ys = [each.layers for each in added], [each.added_ns for each in added if each.added_ns]
        whiskers(panel, xs, ys, 1e3, label=f"{parameters} parameters")
    panel.set_xticks(sorted({each.layers for each in group if each.layers}))
    panel.set_title("what each parameter and layer adds")
    panel.set_xlabel("layers of LoggingTensor")
    panel.set_ylabel("added by parameter and layer (µs)")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7, frameon=False)


def _draw_compile_time(panel: Axes, group: Sequence[Figure]) -> None:
    compiled = [each for each in group if each.graphs]
    if not compiled:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "nothing to compile", ha="center", color="gray")
        return
    for label, line in _lines(compiled).items():
        panel.plot([each.parameters for each in line], [each.compile_ns / 1e9 for each in line], "o-", label=label)
    _logarithmic(panel, group)
    panel.set_ylabel("compile time (s, once)")
    panel.set_title("to compile it")


def _logarithmic(panel: Axes, group: Sequence[Figure]) -> None:
    counts = sorted({each.parameters for each in group})
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(_plainly)
    panel.yaxis.set_minor_formatter(_plainly)
    panel.set_xticks(counts, map(str, counts))
    panel.set_xlabel("wrapped parameters")
    panel.grid(alpha=0.3, which="both")


def _plainly(value: float, _: object) -> str:
    """0.2 and 20, no powers of ten, and not all of them."""
    text = f"{value:g}"
    return text if text.strip("0.")[0] in "125" else ""


def _title(group: Sequence[Figure]) -> str:
    return f"{group[0].model}, {group[0].optimizer}, {group[0].mode}"
