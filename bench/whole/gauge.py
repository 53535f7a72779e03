"""A budget as a small drawing: its bound in the middle, what was measured and its interval beside it."""

from __future__ import annotations

import math

from ..budget import Budget

WIDTH, HEIGHT = 132, 18
MIDDLE = WIDTH / 2
# From the middle to either end: half of the bound, and twice the bound.
DOUBLINGS = 1.0


def gauge(budget: Budget) -> str:
    """An SVG on a logarithmic scale; the side on which the budget is met is shaded. Empty if nothing was measured."""
    if budget.measured is None:
        return ""
    bound = budget.at_most if budget.at_most is not None else budget.at_least
    low, dot, high = (_place(each, bound or 0) for each in _in_order(budget.measured.median, budget.measured.interval))
    shade = 0 if budget.at_most is not None else MIDDLE
    center = HEIGHT / 2
    return (
        f'<svg class="gauge {"met" if budget.met else "not"}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f'<rect class="fine" x="{shade}" width="{MIDDLE}" height="{HEIGHT}"/>'
        f'<line class="bound" x1="{MIDDLE}" x2="{MIDDLE}" y1="0" y2="{HEIGHT}"/>'
        f'<line class="span" stroke-width="2" x1="{low:.1f}" x2="{high:.1f}" y1="{center}" y2="{center}"/>'
        f'<circle cx="{dot:.1f}" cy="{center}" r="3.5"/></svg>'
    )


def _in_order(median: float, interval: tuple[float, float]) -> tuple[float, float, float]:
    return interval[0], median, interval[1]


def _place(value: float, bound: float) -> float:
    """Where a value stands, from left to right; what is off the scale stands at its end."""
    doublings = math.log2(value / bound) if value > 0 < bound else -DOUBLINGS
    return MIDDLE + max(-DOUBLINGS, min(DOUBLINGS, doublings)) / DOUBLINGS * (MIDDLE - 5)
