"""What the int8 bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from ..command import bench_parser, clocked, positive
from ..compiler import COMPILED, EAGER, missing_compiler
from ..timing import Settings
from .problems import DTYPES, ROWS, SHAPES, Layer

# Each weight is as large as a cache, and all take turns: a short product is timed when its own weight is back in it.
STEADY = Settings(loop_ns=2_000_000, warmup_ns=1_000_000, lead_below_ns=20_000_000)
LONGER, PROMISED = 3, Layer(2048, 2048, "float32").name
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

    `seconds` are for the rounds of one problem, three times as many for those of which most is promised; there are
    `fewest` rounds at least. Of nine, the interval of the median leaves out the longest and the shortest.
    """

    shapes: tuple[tuple[int, int], ...] = SHAPES
    rows: tuple[int, ...] = ROWS
    dtypes: tuple[str, ...] = tuple(DTYPES)
    not_compiled: str | None = None
    step: bool = True
    seconds: float = 2.0
    fewest: int = 9
    settings: Settings = STEADY

    def timing(self, problem: Layer | None = None) -> Settings:
        """How long to measure one problem, or the training step."""
        seconds = self.seconds * (LONGER if problem and problem.name.startswith(PROMISED) else 1)
        return replace(self.settings, seconds=seconds, fewest=self.fewest)

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


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench int8`."""
    made = bench_parser("int8", DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        "--shape",
        action="append",
        type=shape,
        metavar="NxK",
        help="outputs x inputs; repeatable; default: " + ", ".join(f"{outputs}x{inputs}" for outputs, inputs in SHAPES),
    )
    made.add_argument(
        "--rows",
        "-m",
        action="append",
        type=positive,
        metavar="M",
        help=f"rows of the activations; repeatable; default: {', '.join(map(str, ROWS))}",
    )
    made.add_argument("--dtype", action="append", choices=DTYPES, help="repeatable; default: both")
    made.add_argument("--eager", action="store_true", help="compile nothing")
    only = made.add_mutually_exclusive_group()
    only.add_argument("--step", action="store_true", help="the training step alone")
    only.add_argument("--table", action="store_true", help="the products alone")
    return made


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for. Without a C++ compiler, the eager half of it."""
    if chosen.plot and chosen.step:
        parser().error(f"--plot {chosen.plot}: the picture is of the products, which --step leaves out")
    quick = chosen.quick
    shapes = chosen.shape or (QUICK_SHAPES if quick else SHAPES)
    return Options(
        shapes=() if chosen.step else tuple(dict.fromkeys(shapes)),
        rows=tuple(dict.fromkeys(chosen.rows or (QUICK_ROWS if quick else ROWS))),
        dtypes=tuple(dict.fromkeys(chosen.dtype or (QUICK_DTYPES if quick else DTYPES))),
        not_compiled="--eager leaves it out." if chosen.eager else missing_compiler(),
        step=not chosen.table,
        seconds=1.0 if quick else 2.0,
        settings=clocked(STEADY, chosen),
    )
