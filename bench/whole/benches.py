"""The benches that `lamina bench all` runs, one line each; above it, how each is asked."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from ..budget import Budget
from ..gaps import gap_lines
from ..tables import BUDGETS, Table
from ..timing import Settings
from .bench import Asked, Bench, Found, Stretch


def _data(results: Any, budgets: Iterable[Budget]) -> dict[str, Any]:
    """The JSON of a bench, with its budgets, and its gaps in words."""
    lines = gap_lines(results.gaps, results.absences)
    return {**results.to_json(), "budgets": [each.to_json() for each in budgets], "gap_lines": lines}


def _without_budgets(tables: Iterable[Table]) -> list[Table]:
    """Those of all benches stand together."""
    return [table for table in tables if table.title != BUDGETS]


def _layers(asked: Asked, stretch: Stretch) -> Found:
    from .. import layers, plot, report
    from ..budgets import budgets
    from ..cases import FORWARDS
    from ..results import Results

    def found(results: Results) -> Found:
        pictures = {"layers": lambda: plot.picture(results)} if results.figures else {}
        return Found(_data(results, budgets(results)), _without_budgets(report.tables(results)), pictures)

    clock = time.thread_time_ns if asked.cpu_time else time.perf_counter_ns
    options = layers.Options(quick=asked.quick, settings=Settings(clock=clock))
    advance = stretch.over(len(options.cases()) + len(FORWARDS))
    return found(layers.run(options, advance, lambda results: stretch.keep(lambda: found(results))))


def _int8(asked: Asked, stretch: Stretch) -> Found:
    from ..int8 import measuring, plot, report
    from ..int8.budgets import budgets
    from ..int8.options import chosen_options, parse
    from ..int8.results import Results

    def found(results: Results) -> Found:
        pictures = {"int8": lambda: plot.picture(results)} if results.figures else {}
        data = _data(results, budgets(results))
        if results.not_compiled:
            data["gap_lines"].append(f"eager only, nothing was compiled: {results.not_compiled}")
        return Found(data, _without_budgets(report.tables(results)), pictures)

    options = chosen_options(parse(["--quick"] * asked.quick + ["--cpu-time"] * asked.cpu_time))
    advance = stretch.over(measuring.work(options))
    return found(measuring.run(options, advance, begun=lambda results: stretch.keep(lambda: found(results))))


def _modes(asked: Asked, stretch: Stretch) -> Found:
    from .. import modes

    def found(figures: list[modes.ModeFigure]) -> Found:
        return Found({**modes.to_json(figures, settings), "gap_lines": []}, list(modes.tables(figures)))

    settings = modes.chosen_settings(quick=asked.quick, cpu_time=asked.cpu_time)
    advance = stretch.over(len(modes.cases()))
    return found(modes.run(settings, advance, lambda figures: stretch.keep(lambda: found(figures))))


BENCHES = (
    Bench("layers", "one operator under 0 to 4 layers of a tensor subclass, beside its peers", 150, 45, _layers),
    Bench("int8", "a linear layer with int8 weights, and a training step with them", 540, 60, _int8),
    Bench("modes", "what logs, counters and guards add to an operator", 15, 5, _modes),
)
