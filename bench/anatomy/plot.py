"""The anatomy's picture: a stacked bar for each subject, a panel for each op, the whole as a mark with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..picture import canvas_of, stacked_bar, whole_mark
from .parts import PARTS, REST, WHOLE
from .results import Anatomies

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLUMNS = 2
PANEL_WIDTH, BAR_INCHES, FRAME_INCHES = 6.5, 0.32, 1.1
COLORS = dict(zip((*PARTS, REST), (*(f"C{number}" for number in range(10)), "navy", "lightgray"), strict=True))
FAR = 2.0
"""A bar that is more times as long as the middle one is cut, and its length is written to it."""


def picture(results: Anatomies) -> Canvas:
    """Microseconds of each part, stacked."""
    ops = list(dict.fromkeys(op for op, _ in results.calls()))
    height = FRAME_INCHES + BAR_INCHES * len(results.subjects)
    canvas, panels = canvas_of(len(ops), COLUMNS, (PANEL_WIDTH, height), 1.2)
    for panel, op in zip(panels, ops, strict=True):
        _draw_panel(panel, results, op)
    handles = {label: bar for panel in panels for bar, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    ordered = [name for name in (*COLORS, WHOLE) if name in handles]
    legend = [handles[name] for name in ordered]
    canvas.legend(legend, ordered, loc="outside lower center", ncols=min(7, max(1, len(ordered))), frameon=False)
    canvas.suptitle("Where the time of one operation under one layer goes (medians; whole: 95 % interval)")
    return canvas


def _draw_panel(panel: Axes, results: Anatomies, op: str) -> None:
    subjects = [subject for each, subject in results.calls() if each == op]
    wholes = sorted(results.of(op, subject)[WHOLE].time_ns.median / 1e3 for subject in subjects)
    limit = min(wholes[-1], FAR * wholes[len(wholes) // 2]) * 1.12
    for row, subject in enumerate(subjects):
        _draw_bar(panel, results, op, subject, row, limit)
    panel.set_xlim(0, limit)
    panel.set_yticks(range(len(subjects)), subjects)
    panel.set_ylim(len(results.subjects) - 0.5, -0.5)
    panel.set_xlabel("time per call (µs)")
    panel.set_title(op)
    panel.grid(alpha=0.3, axis="x")
    panel.set_axisbelow(True)


def _draw_bar(panel: Axes, results: Anatomies, op: str, subject: str, row: int, limit: float) -> None:
    parts = results.of(op, subject)
    stacked_bar(panel, row, {name: part.time_ns.median / 1e3 for name, part in parts.items()}, COLORS, REST)
    whole = parts[WHOLE].time_ns
    if (middle := whole.median / 1e3) > limit:
        panel.text(limit, row, f"{middle:.0f} µs ▸", ha="right", va="center", fontsize=8, backgroundcolor="white")
        return
    whole_mark(panel, row, whole, 1e3, WHOLE)
