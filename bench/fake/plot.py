"""The fake bench's picture: microseconds of operators and training steps, with data and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..picture import bars
from .cases import OPERATOR, STEP
from .results import Results
from .subjects import FAKE_LIKE, FAKE_TENSOR, FLOOR, META, PLAIN, WITHOUT_MODE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INCHES = (13, 4.8)
COLORS = {
    PLAIN: "#937860",
    META: "#8172b3",
    FAKE_TENSOR: "#c44e52",
    FAKE_LIKE: "#4c72b0",
    WITHOUT_MODE: "#64b5cd",
    FLOOR: "#b0b0b0",
}


def picture(results: Results) -> Canvas:
    """A panel of operators, one of steps; a bar for each subject, with the interval of the median."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=INCHES, layout="constrained")
    for panel, kind in zip(canvas.subplots(1, 2), (OPERATOR, STEP), strict=True):
        _draw(panel, results, kind)
    canvas.suptitle("Metadata without data (median; whisker: its 95 % interval)")
    return canvas


def _draw(panel: Axes, results: Results, kind: str) -> None:
    of_kind = [figure for figure in results.figures if figure.kind == kind]
    if not of_kind:
        panel.set_axis_off()
        panel.text(0.5, 0.5, f"no {kind} was measured", ha="center", color="gray")
        return
    found = {name: {each.what: each.time_ns for each in of_kind if each.subject == name} for name in COLORS}
    bars(panel, {name: times for name, times in found.items() if times}, 1e3, COLORS)
    panel.set_xlabel(kind)
    panel.set_ylabel(f"time of one {kind} (µs)")
    panel.legend(fontsize=8, frameon=False, loc="upper left")
    panel.margins(y=0.25)
