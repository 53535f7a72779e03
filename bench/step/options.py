"""What the step bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..command import bench_parser, clocked, positive
from ..compiler import missing_compiler
from ..timing import Settings
from .conditions import EAGER, FULL, MODEL, MODES, QUICK, Group, Matrix, everything, selected
from .models import LARGE, MLP, MODELS
from .optimizers import OPTIMIZERS, SGD

# A training loop finds its model in the caches, so each step is called once before it is timed.
STEADY = Settings(loop_ns=2_000_000, warmup_ns=1_000_000, fewest=15, seconds=5.0, lead_below_ns=50_000_000)
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


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench step`."""
    made = bench_parser("step", DESCRIPTION, epilog=EPILOG)
    made.add_argument("--all", action="store_true", help="all combinations of what is asked for")
    for flag, known in (("--model", _MODELS), ("--optimizer", _OPTIMIZERS), ("--mode", _MODES)):
        made.add_argument(flag, action="append", choices=known, help="repeatable")
    made.add_argument("--layers", type=int, choices=range(1, 5), help="layers of wrapping at most")
    made.add_argument("--parameters", type=positive, action="append", metavar="N", help="wrapped weights; repeatable")
    return made


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
        settings=clocked(settings, chosen),
    )


def _named(asked: Sequence[str] | None, known: dict[str, str], default: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for, in the bench's own order."""
    return tuple(name for written, name in known.items() if written in asked) if asked else default
