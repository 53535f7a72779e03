"""How the cost of a step, and of compiling it, grows: with layers, and with wrapped parameters."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..subjects import PLAIN
from ..timing import Measurement, Summary, least_squares_slope
from ..trials import Gap
from .results import Figure, Results, Slope

LAYERS, PARAMETERS = "layers", "parameters"


@dataclass(frozen=True)
class Line:
    """Figures of one group by their layers or parameters. `by`: how many parameters each of them has, along layers."""

    name: str
    along: str
    points: dict[int, Figure]
    by: int = 1

    @property
    def figures(self) -> list[Figure]:
        """In the order of the points."""
        return [self.points[point] for point in sorted(self.points)]

    def gap(self, reason: str, kind: str) -> Gap:
        """Why its slope is not given."""
        last = self.figures[-1]
        where = f"{last.model}, {last.parameters} parameters, {last.optimizer}, slope along {self.along}"
        return Gap(where, last.subject, last.layers, last.mode, reason, kind)


def lines(figures: Sequence[Figure]) -> Iterator[Line]:
    """Of one group: along layers for each number of parameters, along parameters for each wrapping."""
    for subject in dict.fromkeys(each.subject for each in figures if each.layers):
        for parameters in dict.fromkeys(each.parameters for each in figures):
            found = [
                each for each in figures if each.parameters == parameters and each.subject in (subject, PLAIN.name)
            ]
            if len(found) > 2:
                points = {each.layers: each for each in found}
                yield Line(f"{_where(found[0])} | {parameters} parameters | {subject}", LAYERS, points, parameters)
    for subject, layers in dict.fromkeys((each.subject, each.layers) for each in figures):
        found = [each for each in figures if (each.subject, each.layers) == (subject, layers)]
        if len(found) > 1:
            points = {each.parameters: each for each in found}
            yield Line(f"{_where(found[0])} | {subject} x{layers}", PARAMETERS, points)


def _where(figure: Figure) -> str:
    return f"{figure.model} | {figure.optimizer} | {figure.mode}"


def add_slopes(results: Results, figures: Sequence[Figure], measured: Measurement) -> None:
    """The slopes of one group's times; a gap for each that is too noisy."""
    for line in lines(figures):
        points = sorted(line.points)
        rows = list(zip(*(each.rounds_ns for each in line.figures), strict=True))
        sample = [least_squares_slope(points, row) / line.by for row in rows]
        name = f"{line.name} | slope along {line.along}"
        straight = statistics.median(statistics.correlation(points, row) ** 2 for row in rows)
        found: list[Summary] = []
        results.add(found, partial(measured.given, name, sample), line.gap)
        results.slopes += [Slope(name, line.along, tuple(points), each, straight) for each in found]


def compile_slope(line: Line) -> float | None:
    """Seconds of compilation by further parameter or layer: the line through what was compiled once at each point;
    None of what is not compiled."""
    seconds = [each.compile_ns / 1e9 for each in line.figures]
    return least_squares_slope(sorted(line.points), seconds) if all(seconds) else None
