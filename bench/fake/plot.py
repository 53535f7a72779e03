"""The fake bench's picture: microseconds of operators and training steps, with data and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..picture import write_picture
from .cases import OPERATOR, STEP
from .results import Results
from .subjects import FAKE_LIKE, FAKE_TENSOR, META, PLAIN, WITHOUT_MODE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INCHES = (13, 4.8)
COLORS = {PLAIN: "#937860", META: "#8172b3", FAKE_TENSOR: "#c44e52", FAKE_LIKE: "#4c72b0", WITHOUT_MODE: "#64b5cd"}


def write_plot(results: Results, path: Path) -> None:
    """Write the picture: SVG where the path ends so, PNG otherwise."""
    write_picture(picture(results), path)


def picture(results: Results) -> Canvas:
    """A panel of operators, one of steps; a bar for each subject, with the interval of the median."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=INCHES, layout="constrained")
    for panel, kind in zip(canvas.subplots(1, 2), (OPERATOR, STEP), strict=True):
        _draw(panel, results, kind)
    canvas.suptitle("Metadata without data (median; whisker: its 95 % interval)")
    return canvas


def _draw(panel: Axes, results: Results, kind: str) -> None:
    figures = [figure for figure in results.figures if figure.kind == kind]
    if not figures:
        panel.set_axis_off()
        panel.text(0.5, 0.5, f"no {kind} was measured", ha="center", color="gray")
        return
    names = list(dict.fromkeys(figure.what for figure in figures))
    found = [subject for subject in COLORS if any(figure.subject == subject for figure in figures)]
    width = 0.8 / len(found)
    for number, subject in enumerate(found):
        mine = [figure for figure in figures if figure.subject == subject]
        places = [names.index(figure.what) + (number - (len(found) - 1) / 2) * width for figure in mine]
        medians = [figure.time_ns.median / 1e3 for figure in mine]
        below = [median - figure.time_ns.interval[0] / 1e3 for median, figure in zip(medians, mine, strict=True)]
        above = [figure.time_ns.interval[1] / 1e3 - median for median, figure in zip(medians, mine, strict=True)]
        panel.bar(places, medians, width, color=COLORS[subject], label=subject)
        panel.errorbar(places, medians, yerr=[below, above], fmt="none", ecolor="black", capsize=2, linewidth=0.8)
    panel.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names])
    panel.set_yscale("log")
    panel.set_xlabel(kind)
    panel.set_ylabel(f"time of one {kind} (µs)")
    panel.grid(axis="y", alpha=0.3, which="both")
    panel.set_axisbelow(True)
    panel.legend(fontsize=8, frameon=False, loc="upper left")
    panel.margins(y=0.25)
