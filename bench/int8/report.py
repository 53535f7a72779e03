"""The int8 bench's words: its tables and its JSON."""

from __future__ import annotations

from collections.abc import Iterator

from ..tables import Rows, Table, interval, spread
from .problems import Layer
from .results import Decibels, Figure, Results, StepFigure

LEGEND = (
    "µs: median ± half the distance of the quartiles; in brackets: 95 % interval of the median\n"
    "x plain: how many times faster than plain in the same mode and dtype, paired by round\n"
    "dB: signal to noise against the product with the dequantized weight / with the weight that was quantized"
)


def tables(results: Results) -> list[Table]:
    """All tables of a run but the budgets, in reading order."""
    found = [*(_layer_table(results, layer) for layer in results.layers()), _steps_table(results)]
    return [table for table in found if table.rows]


def _layer_table(results: Results, layer: Layer) -> Table:
    """One row for each M and subject."""
    heads = ["", *(head for mode in results.modes for head in (f"{mode} µs", "x plain", "dB")), "bytes / fp32"]
    rows: Rows = []
    for problem in (problem for problem in results.problems() if problem.layer == layer):
        rows.append([f"M = {problem.rows}", *[""] * (len(heads) - 1)])
        for subject in results.subjects:
            found = {mode: results.figure(problem, subject, mode) for mode in results.modes}
            if any(found.values()):
                rows.append([f"  {subject}", *_cells(found)])
    return Table(f"linear, {layer.name} (outputs x inputs)", heads, rows)


def _cells(found: dict[str, Figure | None]) -> Iterator[str]:
    for figure in found.values():
        yield from _figure_cells(figure)
    nbytes = next(figure.weight_bytes / figure.problem.float_bytes for figure in found.values() if figure)
    yield f"{nbytes:.3f}"


def _figure_cells(figure: Figure | None) -> list[str]:
    if figure is None:
        return ["", "", ""]
    return [spread(figure.time_ns, 1e-3), _speedup(figure), _decibels(figure.decibels)]


def _speedup(figure: Figure | StepFigure) -> str:
    return interval(figure.speedup) if figure.speedup else ""


def _decibels(found: Decibels | None) -> str:
    return f"{found.to_dequantized:.1f} / {found.to_original:.1f}" if found else ""


def _steps_table(results: Results) -> Table:
    rows = [
        [
            f"{figure.subject}, {figure.mode}",
            spread(figure.time_ns, 1e-3),
            _speedup(figure),
            f"{figure.losses[0]:.3f} -> {figure.losses[-1]:.3f}",
            f"{figure.weight_bytes:,}",
        ]
        for figure in results.steps
    ]
    heads = ["", "µs", "x fp32", "loss", "bytes"]
    return Table("training step: MLP 1024-2048-1024, batch 128, SGD", heads, rows)
