"""The demo's picture: what a step costs in each wrapping, and what a layer costs an operator."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from .compiler import COMPILED, EAGER
from .demo_results import DemoResults, cost_line
from .ours import LOGGING
from .timing import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (13, 5.2)
COLORS = {EAGER: "#4c72b0", COMPILED: "#dd8452"}
BAR = 0.38


def as_png(results: DemoResults) -> bytes:
    """The picture as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    steps, cost = figure.subplots(1, 2)
    _draw_steps(steps, results)
    _draw_cost(cost, results)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _draw_steps(panel: Axes, results: DemoResults) -> None:
    """Bars of the ratio to plain, with the interval of the median."""
    modes = results.modes()
    names = list(dict.fromkeys(outcome.wrapping for outcome in results.outcomes))
    for number, mode in enumerate(modes):
        ratios = [outcome.ratio_to_plain for outcome in results.outcomes if outcome.mode == mode]
        shift = (number - (len(modes) - 1) / 2) * BAR
        _draw_bars(panel, [place + shift for place in range(len(names))], ratios, mode)
    panel.axhline(1, color="black", linewidth=0.8, linestyle=":")
    panel.set_xticks(range(len(names)), [_in_lines(name) for name in names])
    panel.set_xlabel("the weights' wrapping")
    panel.set_ylabel("step time / that of plain weights (ratio)")
    panel.set_title("A training step (median; whisker: its 95 % interval)")
    panel.margins(y=0.1)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    panel.legend(frameon=False, loc="upper left")


def _draw_bars(panel: Axes, places: list[float], ratios: list[Summary], mode: str) -> None:
    medians = [ratio.median for ratio in ratios]
    below = [ratio.median - ratio.interval[0] for ratio in ratios]
    above = [ratio.interval[1] - ratio.median for ratio in ratios]
    panel.bar(places, medians, BAR, color=COLORS[mode], label=f"{mode}, to {mode} plain")
    panel.errorbar(places, medians, yerr=[below, above], fmt="none", ecolor="black", capsize=3, linewidth=1)
    for place, ratio in zip(places, ratios, strict=True):
        top = (place, ratio.interval[1])
        panel.annotate(f"{ratio.median:.2f}", top, (0, 5), textcoords="offset points", ha="center", fontsize=9)


def _in_lines(name: str) -> str:
    """A wrapping's name, short enough to stand under its bars."""
    return name.replace("Tensor", "\nTensor").replace("(", "\n(")


def _draw_cost(panel: Axes, results: DemoResults) -> None:
    """A line an operator: microseconds against layers, with its slope in the legend."""
    cost = results.layer_cost
    slopes = {slope.op: slope.ns_per_layer.median / 1e3 for slope in cost.slopes if slope.subject == LOGGING}
    for op in dict.fromkeys(figure.op for figure in cost.figures):
        line = cost_line(cost, op, LOGGING)
        layers = [figure.layers for figure in line]
        medians = [figure.time_ns.median / 1e3 for figure in line]
        (drawn,) = panel.plot(layers, medians, marker="o", markersize=4, label=f"{op}: {slopes[op]:.1f} µs a layer")
        lower = [figure.time_ns.lower_quartile / 1e3 for figure in line]
        upper = [figure.time_ns.upper_quartile / 1e3 for figure in line]
        panel.fill_between(layers, lower, upper, alpha=0.2, color=drawn.get_color())
    panel.set_xticks(range(max(figure.layers for figure in cost.figures) + 1))
    panel.set_ylim(bottom=0)
    panel.set_xlabel("layers of LoggingTensor around each operand (no log in scope)")
    panel.set_ylabel("time per call (µs)")
    panel.set_title("One operator on small tensors (band: quartiles)")
    panel.grid(alpha=0.3)
    panel.legend(frameon=False, title="slope", alignment="left")
