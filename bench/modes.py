"""`lamina bench modes`: what each mode adds to an operator, over a dispatch or function mode that does nothing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import lamina
from lamina.modes import DispatchLog, FunctionLog, MemoryLog, NanGuard, OpCounter

from .budget import Budget
from .peers import DISPATCH_MODE, FUNCTION_MODE, EmptyDispatchMode, EmptyFunctionMode
from .tables import Table, budgets_table, interval, print_tables, spread
from .timing import Measurement, Settings, Summary, TooNoisyError, Variant, describe_machine, measure
from .trials import reason_of

NO_MODE = "no mode"
SCHEMA = 1
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
    "torch FlopCounterMode": lambda: FlopCounterMode(display=False),
}
"""By name; each is entered anew for each loop."""


@dataclass(frozen=True)
class ModeFigure:
    """One mode on one operator: nanoseconds a call, and the ratio to the empty mode of its kind, paired by round.

    Where one of them is too noisy, `refused` says so, and neither is given.
    """

    op: str
    mode: str
    time_ns: Summary | None
    ratio: Summary | None
    refused: str | None = None

    @property
    def name(self) -> str:
        """What tells it apart in a file of figures."""
        return f"{self.op} | {self.mode}"


def cases() -> dict[str, tuple[Callable[..., object], tuple[Any, ...]]]:
    """Operators, by name, with their arguments."""
    x, w = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    return {"add": (torch.add, (x, w)), "mm": (torch.mm, (x, w)), "t": (torch.t, (x,)), "add_": (x.add_, (w,))}


def run(
    settings: Settings, progress: Callable[[str], object] = str, begun: Callable[[list[ModeFigure]], object] = id
) -> list[ModeFigure]:
    """Time all modes on all operators. `begun` is given the list before the first figure is in it."""
    figures: list[ModeFigure] = []
    begun(figures)
    for op, (function, args) in cases().items():
        progress(op)
        variants = [Variant(name, function, args, scope) for name, scope in MODES.items()]
        measured = measure(variants, settings, [(name, _base(name)) for name in MODES])
        figures += [_figure(op, name, measured) for name in MODES]
    return figures


def _figure(op: str, mode: str, measured: Measurement) -> ModeFigure:
    try:
        return ModeFigure(op, mode, measured.time(mode), measured.ratio(mode, _base(mode)))
    except TooNoisyError as error:
        return ModeFigure(op, mode, None, None, reason_of(error))


def _base(mode: str) -> str:
    """The empty mode of the same kind."""
    return FUNCTION_MODE if mode == "FunctionLog" else DISPATCH_MODE


def budgets(figures: Sequence[ModeFigure]) -> Iterator[Budget]:
    """What was promised of the modes."""
    for figure in figures:
        if figure.mode in AT_MOST:
            text = f"{figure.op}: {figure.mode} / {DISPATCH_MODE}"
            yield Budget(text, figure.ratio, at_most=AT_MOST[figure.mode])


def chosen_settings(*, quick: bool, cpu_time: bool) -> Settings:
    """How long to measure, and by which clock."""
    settings = Settings(clock=time.thread_time_ns if cpu_time else time.perf_counter_ns)
    return settings.quick() if quick else settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lamina bench modes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: rougher figures")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead; nanoseconds")
    chosen = parser.parse_args(arguments)
    settings = chosen_settings(quick=chosen.quick, cpu_time=chosen.cpu_time)
    figures = run(settings, lambda op: print(op, file=sys.stderr))
    if chosen.json:
        print(json.dumps(to_json(figures, settings), indent=1))
        return 0
    print_tables([*tables(figures), budgets_table(budgets(figures))])
    return 0


def to_json(figures: Sequence[ModeFigure], settings: Settings) -> dict[str, Any]:
    """Numbers, strings, lists and dictionaries only. Times are nanoseconds."""
    return {
        "schema": SCHEMA,
        "bench": "modes",
        "machine": describe_machine(),
        "settings": {**asdict(settings), "clock": settings.clock.__name__},
        "figures": [{"name": each.name, **asdict(each)} for each in figures if not each.refused],
        "budgets": [each.to_json() for each in budgets(figures)],
        "gaps": [{"name": each.name, "reason": each.refused} for each in figures if each.refused],
    }


def tables(figures: Sequence[ModeFigure]) -> Iterator[Table]:
    """One for each operator."""
    for op in dict.fromkeys(each.op for each in figures):
        rows = [[each.mode, *_cells(each)] for each in figures if each.op == op]
        yield Table(op, ["", "µs a call", "x the empty mode"], rows)


def _cells(figure: ModeFigure) -> list[str]:
    if figure.time_ns is None or figure.ratio is None:
        return ["", "too noisy"]  # why, and by how much, is among the gaps
    return [spread(figure.time_ns, 1e-3), interval(figure.ratio)]


if __name__ == "__main__":
    raise SystemExit(main())
