"""The benches that `lamina bench all` runs, one line each; above it, how each is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..budget import Budget
from ..gaps import gap_lines
from ..layers import Options as LayerOptions
from ..layers import run as run_layers
from ..tables import BUDGETS, Table
from ..timing import Settings
from .bench import Asked, Bench, Found, Measure, Stretch

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def _found(
    results: Any, budgets: Iterable[Budget], tables: Iterable[Table], pictures: dict[str, Callable[[], Canvas]]
) -> Found:
    """What a bench has, with its gaps in words; its budgets stand with those of all benches."""
    lines = gap_lines(results.gaps, results.absences)
    if getattr(results, "not_compiled", None):
        lines.append(f"eager only, nothing was compiled: {results.not_compiled}")
    data = {**results.to_json(), "budgets": [each.to_json() for each in budgets], "gap_lines": lines}
    return Found(data, [each for each in tables if each.title != BUDGETS], pictures if results.figures else {})


def _in_folder(name: str) -> Measure:
    """How to ask a bench that has a folder with its options, its measuring, its budgets, its report and its plot."""

    def measure(asked: Asked, stretch: Stretch) -> Found:
        options, measuring, budgets, report, plot = (
            import_module(f"..{name}.{part}", __package__)
            for part in ("options", "measuring", "budgets", "report", "plot")
        )

        def found(results: Any) -> Found:
            tables = report.tables(results)
            return _found(results, budgets.budgets(results), tables, {name: lambda: plot.picture(results)})

        arguments = ["--quick"] * asked.quick + ["--cpu-time"] * asked.cpu_time
        chosen = options.chosen_options(options.parse(arguments))
        advance = stretch.over(measuring.work(chosen))
        return found(measuring.run(chosen, advance, begun=lambda results: stretch.keep(lambda: found(results))))

    return measure


def _layer_options(asked: Asked) -> LayerOptions:
    clock = time.thread_time_ns if asked.cpu_time else time.perf_counter_ns
    return LayerOptions(quick=asked.quick, settings=Settings(clock=clock))


def _layers(asked: Asked, stretch: Stretch) -> Found:
    from .. import plot, report
    from ..budgets import budgets
    from ..cases import FORWARDS
    from ..results import Results

    def found(results: Results) -> Found:
        return _found(results, budgets(results), report.tables(results), {"layers": lambda: plot.picture(results)})

    options = _layer_options(asked)
    advance = stretch.over(len(options.cases()) + len(FORWARDS))
    return found(run_layers(options, advance, lambda results: stretch.keep(lambda: found(results))))


def _anatomy(asked: Asked, stretch: Stretch) -> Found:
    from ..anatomy import bench, plot, report
    from ..anatomy.results import Anatomies

    def found(results: Anatomies) -> Found:
        made = _found(results, (), report.tables(results), {"anatomy": lambda: plot.picture(results)})
        return replace(made, notes=report.explanations(results))

    options = _layer_options(asked)
    advance = stretch.over(len(options.cases()))
    return found(bench.measured(options, advance, lambda results: stretch.keep(lambda: found(results))))


def _selfcheck(asked: Asked, stretch: Stretch) -> Found:
    from .. import selfcheck

    def found(results: selfcheck.Results) -> Found:
        return Found({**results.to_json(), "gap_lines": []}, [results.table()])

    settings = selfcheck.chosen_settings(cpu_time=asked.cpu_time)
    times = selfcheck.TIMES // (4 if asked.quick else 1)
    advance = stretch.over(2 * times * len(selfcheck.WORKLOADS))
    results = selfcheck.measured(settings, times, advance)
    if results.interrupted:
        stretch.keep(lambda: found(results))
        raise KeyboardInterrupt
    return found(results)


def _modes(asked: Asked, stretch: Stretch) -> Found:
    from .. import modes

    def found(figures: list[modes.ModeFigure]) -> Found:
        data = modes.to_json(figures, settings)
        lines = [f"{each['name']}: {each['reason']}" for each in data["gaps"]]
        return Found({**data, "gap_lines": lines}, list(modes.tables(figures)))

    settings = modes.chosen_settings(quick=asked.quick, cpu_time=asked.cpu_time)
    advance = stretch.over(len(modes.cases()))
    return found(modes.run(settings, advance, lambda figures: stretch.keep(lambda: found(figures))))


BENCHES = (
    Bench(
        "selfcheck", "whether the instrument sees a difference where there is one, and only there", 200, 40, _selfcheck
    ),
    Bench("layers", "one operator under 0 to 4 layers of a tensor subclass, beside its peers", 120, 40, _layers),
    Bench("anatomy", "where the time of one layer goes, part by part", 70, 20, _anatomy),
    Bench(
        "step",
        "a training step whose weights are wrapped, eager and compiled; its growth",
        500,
        90,
        _in_folder("step"),
    ),
    Bench("int8", "a linear layer with int8 weights, and a training step with them", 540, 60, _in_folder("int8")),
    Bench(
        "fake",
        "metadata without data: operators and training steps, beside torch's own fakes",
        60,
        25,
        _in_folder("fake"),
    ),
    Bench("modes", "what logs, counters and guards add to an operator", 25, 6, _modes),
)
