"""What all plots have: whiskers for intervals, colors, a legend below; and their files, PNG or SVG, written whole."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .summary import Summary
from .whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120
# The same plot gives the same file: no time of day, and names of clip paths (the salt) that follow from what they clip.
METADATA = {"png": {}, "svg": {"Date": None}}


def canvas_of(panels: int, columns: int, inches: tuple[float, float], below: float) -> tuple[Figure, list[Axes]]:
    """A canvas with so many panels of this size in rows, and so many inches below for a legend."""
    from matplotlib.figure import Figure as Canvas

    columns = max(1, min(columns, panels))
    rows = max(1, math.ceil(panels / columns))
    canvas = Canvas(figsize=(inches[0] * columns, inches[1] * rows + below), layout="constrained")
    made = list(canvas.subplots(rows, columns, squeeze=False).flat)
    for unused in made[panels:]:
        unused.set_visible(False)
    return canvas, made[:panels]


def whiskers(panel: Axes, xs: Sequence[float], found: Sequence[Summary], unit: float, **style: Any) -> None:
    """Medians, in a unit of so many, with whiskers for their intervals."""
    medians = [each.median / unit for each in found]
    below = [(each.median - each.interval[0]) / unit for each in found]
    above = [(each.interval[1] - each.median) / unit for each in found]
    panel.errorbar(xs, medians, yerr=[below, above], **{"marker": "o", "markersize": 3, "capsize": 2, **style})


def bars(panel: Axes, found: Mapping[str, Mapping[str, Summary]], unit: float, colors: Mapping[str, Any]) -> None:
    """Groups of bars: of each name one in every group that it has a figure for, with a whisker for its interval."""
    groups = list(dict.fromkeys(group for of_name in found.values() for group in of_name))
    width = 0.8 / len(found)
    for number, (name, of_name) in enumerate(found.items()):
        places = [groups.index(group) + (number - (len(found) - 1) / 2) * width for group in of_name]
        panel.bar(places, [each.median / unit for each in of_name.values()], width, color=colors[name], label=name)
        whiskers(panel, places, [*of_name.values()], unit, fmt="none", ecolor="black", linewidth=0.8)
    panel.set_xticks(range(len(groups)), [group.replace(", ", "\n") for group in groups])
    logarithmic(panel)
    panel.grid(axis="y", alpha=0.3, which="both")
    panel.set_axisbelow(True)


def stacked_bar(panel: Axes, row: int, parts: Mapping[str, float], colors: Mapping[str, Any], rest: str) -> None:
    """The parts of one whole, side by side in the order of the colors, what is left over hatched. Those that the noise
    made negative have no width; the sum then reaches past the whole."""
    left = 0.0
    for name in colors:
        width = max(0.0, parts.get(name, 0.0))
        if width:
            hatch = "///" if name == rest else None
            panel.barh(row, width, left=left, color=colors[name], hatch=hatch, edgecolor="white", lw=0.5, label=name)
            left += width


def whole_mark(panel: Axes, row: int, whole: Summary, unit: float, label: str) -> None:
    """A whole with its interval, beside the sum of its parts."""
    error = [[(whole.median - whole.interval[0]) / unit], [(whole.interval[1] - whole.median) / unit]]
    at = [whole.median / unit]
    panel.errorbar(at, [row], xerr=error, fmt="|", color="black", markersize=14, capsize=3, label=label)


def logarithmic(panel: Axes) -> None:
    """A vertical scale of 0.2 and 20: no powers of ten, and not all numbers."""
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(_plainly)
    panel.yaxis.set_minor_formatter(_plainly)


def _plainly(value: float, _: object) -> str:
    text = f"{value:g}"
    return text if text.strip("0.")[:1] in ("1", "2", "5") else ""


def colors_of(names: Sequence[str]) -> dict[str, Any]:
    """A color for each of up to twenty names."""
    from matplotlib import colormaps

    colors = colormaps["tab10" if len(names) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    return {name: colors[number % len(colors)] for number, name in enumerate(names)}


def legend_below(canvas: Figure, columns: int) -> None:
    """One legend for all panels, each name once."""
    handles = {
        label: line
        for panel in canvas.axes
        for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
        if panel.get_legend() is None
    }
    canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


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
