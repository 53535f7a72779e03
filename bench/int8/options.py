"""What the int8 bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..compiler import COMPILED, EAGER, missing_compiler
from ..timing import Settings
from .problems import DTYPES, ROWS, SHAPES, Layer

# Called with what is at work, and by how many figures the whole has advanced.
Progress = Callable[[str, int], object]

# Each weight is as large as a cache, and all take turns: a short product is timed when its own weight is back in it.
STEADY = Settings(loop_ns=2_000_000, warmup_ns=1_000_000, lead_below_ns=20_000_000)
QUICK_ROWS, QUICK_SHAPES, QUICK_DTYPES = (1, 16), SHAPES[:1], ("float32",)
DESCRIPTION = """
Time a linear layer with int8 weights: ScaledInt8Tensor beside plain torch, torchao and the floors of the machine, eager
and compiled, with the accuracy of each; then a training step. Variants alternate in one process, on one thread.
"""
EPILOG = """
All of it takes some nine minutes, half of them for compiling; --quick (2048x2048, M of 1 and 16, float32) some fifty
seconds.
"""


@dataclass(frozen=True)
class Options:
    """Which products to time, whether to compile, whether to time the training step, and how long to measure.

    `seconds` are for the rounds of one problem; there are `fewest` at least.
    """

    shapes: tuple[tuple[int, int], ...] = SHAPES
    rows: tuple[int, ...] = ROWS
    dtypes: tuple[str, ...] = tuple(DTYPES)
    not_compiled: str | None = None
    step: bool = True
    seconds: float = 2.0
    fewest: int = 7
    settings: Settings = STEADY

    @property
    def timing(self) -> Settings:
        """How long to measure one problem."""
        return replace(self.settings, seconds=self.seconds, fewest=self.fewest)

    @property
    def modes(self) -> tuple[str, ...]:
        """Eager, and compiled where that is possible and asked for."""
        return (EAGER,) if self.not_compiled else (EAGER, COMPILED)

    def layers(self) -> list[Layer]:
        """The weights to multiply by."""
        return [Layer(*shape, dtype) for dtype in self.dtypes for shape in self.shapes]


def shape(text: str) -> tuple[int, int]:
    """A shape as the command line writes it, such as 2048x2048: outputs, then inputs."""
    outputs, _, inputs = text.partition("x")
    if not (outputs.isdecimal() and inputs.isdecimal() and int(outputs) and int(inputs)):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write outputs x inputs, as in 2048x2048")
    return int(outputs), int(inputs)


def positive(text: str) -> int:
    """A number of rows."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows; write 1 or more")
    return int(text)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `lamina bench int8`."""
    parser = argparse.ArgumentParser(prog="lamina bench int8", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--quick", action="store_true", help="a part of the table, in fewer rounds: rougher figures")
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        metavar="NxK",
        help="outputs x inputs; repeatable; default: " + ", ".join(f"{outputs}x{inputs}" for outputs, inputs in SHAPES),
    )
    parser.add_argument(
        "--rows",
        "-m",
        action="append",
        type=positive,
        metavar="M",
        help=f"rows of the activations; repeatable; default: {', '.join(map(str, ROWS))}",
    )
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="repeatable; default: both")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--step", action="store_true", help="the training step alone")
    only.add_argument("--table", action="store_true", help="the products alone")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a PNG of speed against rows")
    return parser.parse_args(arguments)


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for. Without a C++ compiler, the eager half of it."""
    clock = time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns
    quick = chosen.quick
    shapes = chosen.shape or (QUICK_SHAPES if quick else SHAPES)
    return Options(
        shapes=() if chosen.step else tuple(dict.fromkeys(shapes)),
        rows=tuple(dict.fromkeys(chosen.rows or (QUICK_ROWS if quick else ROWS))),
        dtypes=tuple(dict.fromkeys(chosen.dtype or (QUICK_DTYPES if quick else DTYPES))),
        not_compiled="--eager leaves it out." if chosen.eager else missing_compiler(),
        step=not chosen.table,
        seconds=1.0 if quick else 2.0,
        settings=replace(STEADY, clock=clock),
    )
