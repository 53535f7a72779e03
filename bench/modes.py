"""`lamina bench modes`: what each mode adds to an operator, over a dispatch or function mode that does nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

import lamina
from lamina.modes import DispatchLog, FunctionLog, MemoryLog, NanGuard, OpCounter

from .budget import Budget
from .cases import EAGER
from .command import Command, bench_parser, clocked
from .peers import DISPATCH_MODE, FUNCTION_MODE, EmptyDispatchMode, EmptyFunctionMode, flop_counter_mode
from .picture import bars, colors_of
from .progress import Progress, silent
from .record import Record
from .tables import Table, interval, spread
from .timing import Measurement, Settings, Summary, Variant, describe_machine, measure_into
from .trials import Gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NO_MODE = "no mode"
INCHES = (13, 4.8)
SIZE = 8  # so small that an operator is all dispatch
AT_MOST = {"OpCounter": 1.5, "DispatchLog": 3.0}


def _logged() -> DispatchLog:
    """One whose records go nowhere: a list that grows would be timed, too."""
    return DispatchLog(lamina.Log(_Nowhere()))


class _Nowhere:
    """A sink."""

    def write(self, record: lamina.OpRecord) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    NO_MODE: nullcontext,
    DISPATCH_MODE: EmptyDispatchMode,
    FUNCTION_MODE: EmptyFunctionMode,
    "OpCounter": OpCounter,
    "OpCounter, costs": lambda: OpCounter(costs=True),
    "DispatchLog": _logged,
    "DispatchLog, hashes": lambda: DispatchLog(lamina.Log(_Nowhere(), values="hash")),
    "FunctionLog": lambda: FunctionLog(lamina.Log(_Nowhere())),
    "NanGuard": NanGuard,
    "MemoryLog": MemoryLog,
    "torch FlopCounterMode": flop_counter_mode,
}
"""By name; each is entered anew for each loop."""


@dataclass(frozen=True)
class Figure:
    """One mode on one operator: nanoseconds a call, and the ratio to the empty mode of its kind, paired by round."""

    name: str
    op: str
    mode: str
    time_ns: Summary
    ratio: Summary


@dataclass
class Results(Record):
    """All that one run measured."""

    bench: ClassVar[str] = "modes"

    figures: list[Figure] = field(default_factory=list)


def cases() -> dict[str, tuple[Callable[..., object], tuple[Any, ...]]]:
    """Operators, by name, with their arguments."""
    x, w = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    return {"add": (torch.add, (x, w)), "mm": (torch.mm, (x, w)), "t": (torch.t, (x,)), "add_": (x.add_, (w,))}


def seconds_each(settings: Settings) -> float:
    """How many seconds one operator takes."""
    return settings.seconds + 0.5


def work(settings: Settings) -> float:
    """How many seconds a run takes."""
    return seconds_each(settings) * len(cases())


def run(settings: Settings, progress: Progress = silent, begun: Callable[[Results], object] = id) -> Results:
    """Time all modes on all operators."""
    results = Results(describe_machine(), settings)
    begun(results)
    for op, (function, args) in cases().items():
        progress(op, seconds_each(settings))
        variants = [Variant(name, function, args, scope) for name, scope in MODES.items()]
        measure_into(partial(_add, results, op), variants, settings, [(name, _base(name)) for name in MODES])
    return results


def _add(results: Results, op: str, measured: Measurement) -> None:
    for mode in MODES:
        results.add(results.figures, partial(_figure, op, mode, measured), partial(Gap, op, mode, 1, EAGER.name))


def _figure(op: str, mode: str, measured: Measurement) -> Figure:
    return Figure(f"{op} | {mode}", op, mode, measured.time(mode), measured.ratio(mode, _base(mode)))


def _base(mode: str) -> str:
    """The empty mode of the same kind."""
    return FUNCTION_MODE if mode == "FunctionLog" else DISPATCH_MODE


def budgets(results: Results) -> Iterator[Budget]:
    """What was promised of the modes."""
    found = {(figure.op, figure.mode): figure.ratio for figure in results.figures}
    for op in cases():
        for mode, at_most in AT_MOST.items():
            yield Budget(f"{op}: {mode} / {DISPATCH_MODE}", found.get((op, mode)), at_most)


def tables(results: Results) -> Iterator[Table]:
    """One for each operator."""
    for op in dict.fromkeys(each.op for each in results.figures):
        rows = [
            [each.mode, spread(each.time_ns, 1e-3), interval(each.ratio)] for each in results.figures if each.op == op
        ]
        yield Table(op, ["", "µs a call", "x the empty mode"], rows)


def picture(results: Results) -> Canvas:
    """A bar for each mode and operator, with its interval."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=INCHES, layout="constrained")
    panel = canvas.subplots()
    found = {mode: {each.op: each.time_ns for each in results.figures if each.mode == mode} for mode in MODES}
    bars(panel, {mode: times for mode, times in found.items() if times}, 1e3, colors_of([*MODES]))
    panel.set_xlabel("operator")
    panel.set_ylabel("time per call (µs)")
    panel.set_title("What modes add to an operator (median; whisker: its 95 % interval)")
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return canvas


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench modes`."""
    return bench_parser("modes", "What each mode adds to an operator, over one that does nothing.")


def chosen_settings(chosen: argparse.Namespace) -> Settings:
    """What the command line asked for."""
    return clocked(Settings().quick() if chosen.quick else Settings(), chosen)


LEGEND = "median ± half the distance of the quartiles; in brackets: 95 % interval of the median, paired by round"
COMMAND = Command(parser, chosen_settings, work, run, LEGEND, tables, budgets, picture=picture)
main = COMMAND.main

if __name__ == "__main__":
    raise SystemExit(main())
