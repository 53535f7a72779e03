"""A plan's picture: bytes alive over the operators of a step, stacked by what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .ledger import CATEGORIES
from .report import in_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from .plan import Plan

INCHES, DOTS_PER_INCH = (10, 5), 120
COLORS = ("#4c72b0", "#dd8452", "#8172b3", "#937860", "#55a868", "#c44e52")
UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("bytes", 1))


def write_plot(plan: Plan, path: Path) -> None:
    """Write the picture; the same plan gives the same file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = picture(plan)
    FigureCanvasAgg(canvas)
    kind = "svg" if path.suffix.lower() == ".svg" else "png"
    canvas.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else {})


def picture(plan: Plan) -> Canvas:
    """Bytes over operators, the peak marked, the phases named, the device's memory as a line where it is near."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=INCHES, layout="constrained")
    panel = canvas.subplots()
    unit, size = next(each for each in UNITS if plan.peak_bytes >= each[1] or each[1] == 1)
    _draw_memory(panel, plan, size)
    _draw_scratch(panel, plan, size)
    _draw_peak(panel, plan, size)
    _draw_limit(panel, plan, size)
    _draw_phases(panel, plan)
    panel.set_xlabel("operators of the step, in order (number)")
    panel.set_ylabel(f"bytes of tensors alive on {plan.device} ({unit})")
    panel.set_title("Memory of a step, planned")
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    panel.margins(x=0)
    handles, labels = panel.get_legend_handles_labels()
    panel.legend(handles[::-1], labels[::-1], frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return canvas


def _draw_memory(panel: Axes, plan: Plan, size: int) -> None:
    places = [moment.number for moment in plan.moments]
    ends = [*places[1:], max(len(plan.steps), places[-1] + 1)]
    shown = [number for number, _ in enumerate(CATEGORIES) if any(moment.nbytes[number] for moment in plan.moments)]
    layers = [[moment.nbytes[number] / size for moment in plan.moments] for number in shown]
    panel.stackplot(
        [*places, ends[-1]],
        [[*layer, layer[-1]] for layer in layers],
        labels=[f"{CATEGORIES[number]}: {in_bytes(plan.by_category[CATEGORIES[number]])}" for number in shown],
        colors=[COLORS[number] for number in shown],
        step="post",
        linewidth=0,
    )


def _draw_scratch(panel: Axes, plan: Plan, size: int) -> None:
    """Hatched, on top of the tensors: an estimate."""
    scratch = plan.scratch
    if not scratch.nbytes:
        return
    places = [moment.number for moment in plan.moments]
    below = [moment.total / size for moment in plan.moments]
    extra = [(scratch.lasting + scratch.by_step.get(place, 0)) / size for place in places]
    panel.fill_between(
        [*places, max(len(plan.steps), places[-1] + 1)],
        [*below, below[-1]],
        [*(low + more for low, more in zip(below, extra, strict=True)), below[-1] + extra[-1]],
        step="post",
        facecolor="none",
        edgecolor="gray",
        hatch="////",
        linewidth=0,
        label=f"scratch of kernels, an estimate: {in_bytes(scratch.nbytes)}",
    )


def _draw_peak(panel: Axes, plan: Plan, size: int) -> None:
    step, top = plan.peak.step, plan.peak_bytes / size
    place = step.number if step else -1
    at = f"{step.op}\n{step.phase}, {step.module or 'outside of modules'}" if step else "before the step"
    late = place > len(plan.steps) / 2
    panel.plot([place], [top], marker="v", color="black", clip_on=False)
    panel.annotate(
        f"peak {in_bytes(plan.peak_bytes)}\n{at}",
        (place, top),
        (-8 if late else 8, 6),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=8,
    )
    panel.set_ylim(0, max(top, plan.scratch.peak_bytes / size) * 1.25 if top else 1)


def _draw_limit(panel: Axes, plan: Plan, size: int) -> None:
    hardware = plan.hardware
    if hardware is not None and hardware.memory < plan.peak_bytes * 2:
        panel.axhline(hardware.memory / size, color="black", linestyle="--", linewidth=1)
        label = f"{hardware.name}: {in_bytes(hardware.memory)}"
        panel.annotate(label, (0, hardware.memory / size), (4, 3), textcoords="offset points", fontsize=8)
        panel.set_ylim(0, max(panel.get_ylim()[1], hardware.memory / size * 1.1))


def _draw_phases(panel: Axes, plan: Plan) -> None:
    least = len(plan.steps) / 25
    for first, last, phase in _phases(plan):
        panel.axvline(first, color="black", linewidth=0.5, alpha=0.4)
        if last - first >= least:
            text = ((first + last) / 2, 0.985)
            panel.annotate(phase, text, xycoords=panel.get_xaxis_transform(), ha="center", va="top", fontsize=8)


def _phases(plan: Plan) -> Iterator[tuple[int, int, str]]:
    """Runs of operators of one phase: first, end, name."""
    first = 0
    for number, step in enumerate(plan.steps):
        if step.phase != plan.steps[first].phase:
            yield first, number, plan.steps[first].phase
            first = number
    if plan.steps:
        yield first, len(plan.steps), plan.steps[first].phase
