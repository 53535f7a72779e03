"""How the cost of a step grows: with layers, and with wrapped parameters."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from ..subjects import PLAIN
from ..timing import Summary, least_squares_slope
from .results import Figure, Slope


def slopes(figures: Sequence[Figure]) -> Iterator[Slope]:
    """Of one group: along layers for each number of parameters, along parameters for each wrapping."""
    for subject in dict.fromkeys(each.subject for each in figures if each.layers):
        for parameters in dict.fromkeys(each.parameters for each in figures):
            line = {
                each.layers: each
                for each in figures
                if each.parameters == parameters and each.subject in (subject, PLAIN.name)
            }
            if len(line) > 2:
                yield _slope(f"{parameters} parameters | {subject}", "layers", line, by=parameters)
    for subject, layers in dict.fromkeys((each.subject, each.layers) for each in figures):
        line = {each.parameters: each for each in figures if (each.subject, each.layers) == (subject, layers)}
        if len(line) > 1:
            yield _slope(f"{subject} x{layers}", "parameters", line)


def _slope(name: str, along: str, line: Mapping[int, Figure], by: int = 1) -> Slope:
    points = sorted(line)
    first = line[points[0]]
    rows = list(zip(*(line[point].rounds_ns for point in points), strict=True))
    sample = [least_squares_slope(points, row) / by for row in rows]
    straight = statistics.median(statistics.correlation(points, row) ** 2 for row in rows)
    where = f"{first.model} | {first.optimizer} | {first.mode}"
    return Slope(f"{where} | {name} | slope along {along}", along, tuple(points), Summary.of(sample), straight)


def compile_seconds_each(figures: Sequence[Figure], subject: str, layers: int) -> float | None:
    """Seconds of compilation by further parameter: the line through what was compiled once for each number of them."""
    line = {
        each.parameters: each.compile_ns / 1e9
        for each in figures
        if (each.subject, each.layers) == (subject, layers) and each.compile_ns
    }
    return least_squares_slope(list(line), list(line.values())) if len(line) > 1 else None
