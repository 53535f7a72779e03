"""The benches that `lamina bench all` runs, one line each; above it, how each is asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..command import Command, missing
from .bench import Asked, Bench, Found, Stretch

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def _command(module: str) -> Command[Any, Any]:
    command: Command[Any, Any] = import_module(f"..{module}", __package__).COMMAND
    return command


def _options(command: Command[Any, Any], asked: Asked) -> Any:
    return command.options(command.parser().parse_args(asked.arguments))


def _expected(module: str, asked: Asked) -> float:
    command = _command(module)
    return command.work(_options(command, asked))


def _measure(module: str, asked: Asked, stretch: Stretch) -> Found:
    command = _command(module)

    def found(results: Any) -> Found:
        """The tables without the budgets, which stand with those of all benches."""
        data = {**command.data(results), "gap_lines": missing(results)}
        tables = [table for table in command.tables(results) if table.rows]
        pictures: dict[str, Callable[[], Canvas]] = {}
        if command.picture and results.figures:
            pictures[results.bench] = partial(command.picture, results)
        return Found(data, tables, pictures, command.notes(results))

    def begun(results: Any) -> None:
        stretch.keep(lambda: found(results))

    return found(command.run(_options(command, asked), stretch.begin, begun))


def _bench(name: str, module: str, about: str) -> Bench:
    return Bench(name, about, partial(_expected, module), partial(_measure, module))


BENCHES = (
    _bench("selfcheck", "selfcheck", "whether the instrument sees a difference where there is one, and only there"),
    _bench("layers", "layers", "one operator under 0 to 4 layers of a tensor subclass, beside its peers"),
    _bench("anatomy", "anatomy.bench", "where the time of one layer goes, part by part"),
    _bench("step", "step.command", "a training step whose weights are wrapped, eager and compiled; its growth"),
    _bench("int8", "int8.command", "a linear layer with int8 weights, and a training step with them"),
    _bench("fake", "fake.command", "metadata without data: operators and training steps, beside torch's own fakes"),
    _bench("modes", "modes", "what logs, counters and guards add to an operator"),
)
