"""The step bench's picture: how step and compile time grow with wrapped parameters and with layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..ours import LOGGING
from ..picture import colors_of, legend_below, logarithmic, stacked_bar, whiskers, whole_mark
from ..subjects import PLAIN
from .budgets import AT_MOST_US
from .models import SMALL
from .results import Figure, Results, Split
from .split import ACCUMULATE, BOTH, FLATTEN, GUARDS, HOOKS, REST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANEL_INCHES = (4.6, 3.6)
PART_COLORS = {GUARDS: "C0", FLATTEN: "C1", HOOKS: "C2", ACCUMULATE: "C4", REST: "lightgray"}


def picture(results: Results) -> Canvas:
    """A row for each mode that was measured at several numbers of parameters: step against parameters, step against
    layers, compile time against parameters. Below them, what a wrapped parameter adds to a compiled step, in parts."""
    from matplotlib.figure import Figure as Canvas

    groups, colors = growing(results), _colors(results)
    rows = len(groups) + bool(results.splits)
    canvas = Canvas(figsize=(PANEL_INCHES[0] * 3, PANEL_INCHES[1] * rows + 0.8), layout="constrained")
    grid = canvas.add_gridspec(rows, 3)
    for row, group in enumerate(groups):
        _draw_parameters(canvas.add_subplot(grid[row, 0]), group, colors)
        _draw_layers(canvas.add_subplot(grid[row, 1]), group)
        _draw_compile_time(canvas.add_subplot(grid[row, 2]), group, colors)
    if results.splits:
        _draw_splits(canvas.add_subplot(grid[-1, :]), results)
    legend_below(canvas, 3)
    canvas.suptitle("A training step with wrapped weights (median; whisker: its 95 % interval)")
    return canvas


def growing(results: Results) -> list[list[Figure]]:
    """The groups with several numbers of parameters; all groups of narrow models where there is none."""
    small = [group for group in results.groups() if group[0].width == SMALL.width]
    several = [group for group in small if len({each.parameters for each in group}) > 1]
    return several or small or results.groups()


def _colors(results: Results) -> dict[str, Any]:
    """The color of each wrapping in all panels, whichever of them have a figure of it."""
    subjects = [*results.subjects]
    wrappings = {(subjects.index(each.subject), each.layers): each for each in results.figures}
    return colors_of([_label(each) for _, each in sorted(wrappings.items(), key=lambda item: item[0])])


def _label(figure: Figure | Split) -> str:
    return f"{figure.subject} x{figure.layers}" if figure.layers else figure.subject


def _lines(group: Sequence[Figure], colors: dict[str, Any]) -> Iterator[tuple[str, list[Figure]]]:
    """Figures by wrapping, in the order of their parameters."""
    ordered = sorted(group, key=lambda each: each.parameters)
    for label in colors:
        if line := [each for each in ordered if _label(each) == label]:
            yield label, line


def _draw_parameters(panel: Axes, group: Sequence[Figure], colors: dict[str, Any]) -> None:
    for label, line in _lines(group, colors):
        xs, ys = [each.parameters for each in line], [each.time_ns for each in line]
        whiskers(panel, xs, ys, 1e6, label=label, color=colors[label])
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


def _draw_compile_time(panel: Axes, group: Sequence[Figure], colors: dict[str, Any]) -> None:
    compiled = [each for each in group if each.graphs]
    if not compiled:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "nothing to compile", ha="center", color="gray")
        return
    for label, line in _lines(compiled, colors):
        xs, ys = [each.parameters for each in line], [each.compile_ns / 1e9 for each in line]
        panel.plot(xs, ys, "o-", label=label, color=colors[label])
    _logarithmic(panel, group)
    panel.set_ylabel("compile time (s, once)")
    panel.set_title("to compile it")


def _draw_splits(panel: Axes, results: Results) -> None:
    """A bar for each wrapping, beside the budget of all of it."""
    for row, split in enumerate(results.splits):
        parts = {name: split.parts_ns[name].median / 1e3 for name in PART_COLORS}
        stacked_bar(panel, row, parts, PART_COLORS, REST)
        whole_mark(panel, row, split.parts_ns[BOTH], 1e3, BOTH)
    panel.axvline(AT_MOST_US[BOTH], color="black", linewidth=0.8, linestyle=":", label=f"budget of {BOTH}")
    panel.set_yticks(range(len(results.splits)), [_label(split) for split in results.splits])
    panel.invert_yaxis()
    panel.set_xlim(left=0)
    panel.set_xlabel("added by parameter and layer (µs)")
    panel.set_title(f"Where it goes: compiled model, {results.splits[0].parameters} wrapped parameters")
    panel.grid(alpha=0.3, axis="x")
    panel.set_axisbelow(True)
    handles = {name: handle for handle, name in zip(*panel.get_legend_handles_labels(), strict=True)}
    panel.legend(handles.values(), handles.keys(), fontsize=8, frameon=False, loc="upper right")


def _logarithmic(panel: Axes, group: Sequence[Figure]) -> None:
    counts = sorted({each.parameters for each in group})
    panel.set_xscale("log", base=2)
    logarithmic(panel)
    panel.set_xticks(counts, map(str, counts))
    panel.set_xlabel("wrapped parameters")
    panel.grid(alpha=0.3, which="both")


def _title(group: Sequence[Figure]) -> str:
    return f"{group[0].model}, {group[0].optimizer}, {group[0].mode}"
