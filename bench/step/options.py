"""What the step bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compiler import missing_compiler
from ..timing import Settings
from .conditions import EAGER, FULL, MODEL, MODES, QUICK, Group, Matrix, everything, selected
from .models import LARGE, MLP, MODELS
from .optimizers import OPTIMIZERS, SGD

Progress = Callable[[str, int], object]
"""Called with what is at work, and by how many trials the whole has advanced."""

# A training loop finds its model in the caches, so each step is called once before it is timed.
STEADY = Settings(
    loop_ns=2_000_000, warmup_ns=1_000_000, fewest=15, seconds=5.0, refuse_above=None, lead_below_ns=50_000_000
)
LARGE_PARAMETERS = 4
DESCRIPTION = """
Time training steps of small models whose weights are wrapped, eager and compiled, beside the same steps with plain
weights; with compile time, guards and memory, how the cost grows with parameters and layers, and where it goes.
"""
EPILOG = """
By default each dimension alone, from one point (some eight minutes); --quick: one model (about one minute); --all: all
combinations of what is asked for (an hour and more, most of it for compiling).
"""


@dataclass(frozen=True)
class Options:
    """Which steps to time, whether to split the cost of a compiled one (into how many layers' worth), how long."""

    matrix: Matrix = FULL
    all_combinations: bool = False
    split_layers: tuple[int, ...] = (1, 2, 4)
    large: bool = True
    not_compiled: str | None = None
    settings: Settings = field(default_factory=lambda: STEADY)

    def groups(self) -> list[Group]:
        """What is timed together, without what can't be compiled here."""
        asked = self.matrix
        if self.not_compiled:
            asked = replace(asked, modes=tuple(mode for mode in asked.modes if mode == EAGER))
        found = list(everything(asked) if self.all_combinations else selected(asked))
        if self.large and MODEL in asked.modes and MLP in asked.models:
            counts = (LARGE_PARAMETERS,)
            found.append(Group(MLP, SGD, MODEL, counts, min(1, asked.layers), quantized=False, size=LARGE))
        return found

    def splits(self) -> tuple[int, ...]:
        """The numbers of layers whose cost is split; none where nothing is compiled."""
        return () if self.not_compiled or MODEL not in self.matrix.modes else self.split_layers


def _choice(names: Sequence[str]) -> dict[str, str]:
    """By the name that is written on the command line."""
    return {name.lower().replace(" ", "-"): name for name in names}


_MODELS, _OPTIMIZERS, _MODES = _choice(tuple(MODELS)), _choice(tuple(OPTIMIZERS)), _choice(MODES)


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of parameters; write 1 or more")
    return int(text)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `lamina bench step`."""
    parser = argparse.ArgumentParser(prog="lamina bench step", description=DESCRIPTION, epilog=EPILOG)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="one model, few layers, fewer rounds: rougher figures")
    how_much.add_argument("--all", action="store_true", help="all combinations of what is asked for")
    for flag, known in (("--model", _MODELS), ("--optimizer", _OPTIMIZERS), ("--mode", _MODES)):
        parser.add_argument(flag, action="append", choices=known, help="repeatable")
    parser.add_argument("--layers", type=int, choices=range(1, 5), help="layers of wrapping at most")
    parser.add_argument(
        "--parameters", type=_positive, action="append", metavar="N", help="wrapped weights; repeatable"
    )
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a plot of the growth: SVG by name, else PNG")
    return parser.parse_args(arguments)


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for. Without a C++ compiler, the eager part of it."""
    base = QUICK if chosen.quick else FULL
    matrix = Matrix(
        _named(chosen.model, _MODELS, base.models),
        _named(chosen.optimizer, _OPTIMIZERS, base.optimizers),
        _named(chosen.mode, _MODES, base.modes),
        tuple(sorted(set(chosen.parameters or base.parameters))),
        chosen.layers or base.layers,
    )
    settings = replace(STEADY.quick(), loop_ns=STEADY.loop_ns, seconds=2.0) if chosen.quick else STEADY
    return Options(
        matrix,
        chosen.all,
        split_layers=tuple(depth for depth in ((1,) if chosen.quick else (1, 2, 4)) if depth <= matrix.layers),
        large=not (chosen.parameters or chosen.optimizer),
        not_compiled=missing_compiler(),
        settings=replace(settings, clock=time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns),
    )


def _named(asked: Sequence[str] | None, known: dict[str, str], default: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for, in the bench's own order."""
    return tuple(name for written, name in known.items() if written in asked) if asked else default
