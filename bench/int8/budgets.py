"""What was promised of int8 linear layers: each budget with what was measured, its interval, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..budget import Budget
from ..timing import Summary, paired_ratio
from .peers import TORCHAO_DYNAMIC, TORCHAO_WEIGHT_ONLY
from .problems import Problem
from .results import Figure, Results
from .step import FP32, INT16
from .subjects import ours

# How many times faster than plain the packed weight is, by rows; 2048x2048, fp32.
AT_LEAST_FASTER = {"int16": {1: 2.8, 16: 2.8, 64: 1.8}, "int8": {1: 4.5, 16: 5.0, 64: 4.0}}
AT_LEAST_DECIBELS = {"int16": 85.0, "int8": 38.0}
# Of the same accuracy: whose activations stay float or keep 16 bits, and whose activations have 8.
SAME_ACCURACY = {
    TORCHAO_WEIGHT_ONLY: ("float", "int16"),
    TORCHAO_DYNAMIC: ("int8",),
}
AUTO_AT_MOST = 1.05
AT_MOST_BYTES = {False: 0.27, True: 0.55}
STEP_AT_LEAST_FASTER = {"eager": 1.2, "compiled": 1.0}


def budgets(results: Results) -> Iterator[Budget]:
    """All budgets that concern what the run was to measure."""
    fp32 = [problem for problem in results.problems() if problem.dtype == "float32"]
    for mode in results.modes:
        yield from _faster_than_plain(results, fp32, mode)
    for mode in results.modes:
        yield from _no_slower_than_torchao(results, fp32, mode)
    for mode in results.modes:
        yield from _auto_near_the_best(results, mode)
    yield from _accurate(results, fp32)
    yield from _small(results, fp32)
    if results.steps:
        for mode in results.modes:
            yield _step(results, mode)


def _faster_than_plain(results: Results, problems: Iterable[Problem], mode: str) -> Iterator[Budget]:
    for problem in problems:
        if (problem.outputs, problem.inputs) != (2048, 2048):
            continue
        for activation, by_rows in AT_LEAST_FASTER.items():
            if problem.rows in by_rows:
                subject = ours(activation, packed=True)
                figure = results.figure(problem, subject, mode)
                text = f"{problem.name}, {mode}: {subject}, times as fast as plain"
                yield Budget(text, figure.speedup if figure else None, at_least=by_rows[problem.rows])


def _no_slower_than_torchao(results: Results, problems: Iterable[Problem], mode: str) -> Iterator[Budget]:
    """lamina in one mode against the better of torchao's two."""
    for problem in problems:
        for peer, activations in SAME_ACCURACY.items():
            names = [ours(each, packed=packed) for each in activations for packed in (False, True)]
            mine, its = results.fastest(problem, names, [mode]), results.fastest(problem, [peer], results.modes)
            text = f"{problem.name}, {mode}: {_named(mine) or 'lamina'} / {_named(its, with_mode=True) or peer}"
            yield Budget(text, _ratio(mine, its), at_most=1.0)


def _auto_near_the_best(results: Results, mode: str) -> Iterator[Budget]:
    for problem in results.problems():
        for packed in (False, True):
            auto = ours("auto", packed=packed)
            names = [ours(activation, packed=packed) for activation in ("float", "int16", "int8")]
            best = results.fastest(problem, names, [mode])
            text = f"{problem.name}, {mode}: {auto} / {_named(best) or 'the best of ours'}"
            yield Budget(text, _ratio(results.figure(problem, auto, mode), best), at_most=AUTO_AT_MOST)


def _accurate(results: Results, problems: list[Problem]) -> Iterator[Budget]:
    """The worst of all problems and modes."""
    if not problems:
        return
    for activation, at_least in AT_LEAST_DECIBELS.items():
        names = {ours(activation), ours(activation, packed=True)}
        found = [
            figure.decibels.to_dequantized
            for figure in results.figures
            if figure.problem in problems and figure.subject in names and figure.decibels
        ]
        text = f"float32, lamina {activation}: worst decibels against the dequantized weight"
        yield Budget(text, Summary.of([min(found)]) if found else None, at_least=at_least)


def _small(results: Results, problems: Iterable[Problem]) -> Iterator[Budget]:
    for layer in dict.fromkeys(problem.layer for problem in problems):
        for packed, at_most in AT_MOST_BYTES.items():
            subject = ours("int16", packed=packed)
            figures = (each for each in results.figures if each.problem.layer == layer and each.subject == subject)
            share = next((each.weight_bytes / layer.float_bytes for each in figures), None)
            text = f"{layer.name}: {subject}, bytes of the weight / of fp32"
            yield Budget(text, None if share is None else Summary.of([share]), at_most=at_most)


def _step(results: Results, mode: str) -> Budget:
    figure = results.step(INT16, mode)
    text = f"training step, {mode}: {INT16}, times as fast as {FP32}"
    return Budget(text, figure.speedup if figure else None, at_least=STEP_AT_LEAST_FASTER[mode])


def _ratio(mine: Figure | None, its: Figure | None) -> Summary | None:
    return paired_ratio(mine.rounds_ns, its.rounds_ns) if mine and its else None


def _named(figure: Figure | None, *, with_mode: bool = False) -> str:
    if figure is None:
        return ""
    return f"{figure.subject} {figure.mode}" if with_mode else figure.subject
