"""What one layer may cost: each budget with what was measured, its interval, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterator

from .budget import Budget
from .ours import LOGGING, TRANSPARENT
from .peers import HAND_WRITTEN, TORCH_LOGGING, TWO_TENSOR
from .results import Figure, Results
from .subjects import PLAIN
from .timing import Summary, least_squares_slope, paired_ratio

ONE_LAYER_OPS = ("add", "t", "view", "detach", "add_")
AT_MOST_HAND_WRITTEN = 1.15
AT_LEAST_FASTER = {TORCH_LOGGING: 3.0, TWO_TENSOR: 6.0}
AT_MOST_GROWTH = 1.15


def budgets(results: Results) -> Iterator[Budget]:
    """The budgets of a transparent layer, for both of lamina's one-tensor types."""
    for subject in (TRANSPARENT, LOGGING):
        for op in ONE_LAYER_OPS:
            text = f"{subject}, {op}, one layer / {HAND_WRITTEN}"
            measured = _one_layer_ratio(results, op, subject, HAND_WRITTEN)
            yield Budget(text, measured, AT_MOST_HAND_WRITTEN)
        for op in ONE_LAYER_OPS:
            yield Budget(f"{subject}, {op}, a further layer / the first", _growth(results, op, subject), AT_MOST_GROWTH)
        for op in ("add", "add_"):
            for peer, factor in AT_LEAST_FASTER.items():
                measured = _one_layer_ratio(results, op, subject, peer)
                yield Budget(f"{subject}, {op}, one layer / {peer}", measured, 1 / factor)


def _one_layer_ratio(results: Results, op: str, subject: str, other: str) -> Summary | None:
    mine, base = results.figure(op, subject, 1), results.figure(op, other, 1)
    return paired_ratio(mine.rounds_ns, base.rounds_ns) if mine and base else None


def _growth(results: Results, op: str, subject: str) -> Summary | None:
    """The slope over layers 1, 2, ... as a multiple of what the first layer adds to plain."""
    plain = results.figure(op, PLAIN.name, 0)
    layered = sorted((each for each in results.eager(op) if each.subject == subject), key=lambda each: each.layers)
    if plain is None or len(layered) < 2:
        return None
    return Summary.of([_further_by_first(round_ns) for round_ns in _rounds([plain, *layered])])


def _rounds(figures: list[Figure]) -> Iterator[tuple[float, ...]]:
    return zip(*(figure.rounds_ns for figure in figures), strict=True)


def _further_by_first(times: tuple[float, ...]) -> float:
    plain, *layered = times
    return least_squares_slope(range(len(layered)), layered) / (layered[0] - plain)
