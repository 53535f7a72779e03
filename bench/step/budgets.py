"""What wrapped parameters may cost a compiled step: each budget with what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget import Budget
from ..ours import LOGGING
from ..timing import Summary
from .conditions import MODEL
from .models import LARGE
from .results import Results
from .split import BOTH, FORWARD, PARAMETERS

AT_MOST_US = {FORWARD: 1.0, BOTH: 12.0}
AT_MOST_LARGE = 1.02


def budgets(results: Results) -> Iterator[Budget]:
    """By parameter and layer, for each number of layers; and of a step with layers of usual size."""
    layers = [each.layers for each in results.splits if each.subject == LOGGING] or [1]
    for part, at_most in AT_MOST_US.items():
        for depth in layers:
            text = f"{part}: µs a parameter and layer, compiled, {PARAMETERS} wrapped parameters, {LOGGING} x{depth}"
            yield Budget(text, _microseconds(results, depth, part), at_most)
    text = f"compiled step, hidden size {LARGE.width}, batch {LARGE.batch}: one layer of LoggingTensor / plain"
    yield Budget(text, _large(results), AT_MOST_LARGE)


def _microseconds(results: Results, layers: int, part: str) -> Summary | None:
    split = results.split(LOGGING, layers)
    if split is None:
        return None
    found = split.parts_ns[part]
    low, high = found.interval
    return Summary(found.median / 1e3, found.lower_quartile / 1e3, found.upper_quartile / 1e3, (low / 1e3, high / 1e3))


def _large(results: Results) -> Summary | None:
    found = (
        each.to_plain
        for each in results.figures
        if (each.mode, each.subject, each.layers, each.width) == (MODEL, LOGGING, 1, LARGE.width)
    )
    return next(found, None)
