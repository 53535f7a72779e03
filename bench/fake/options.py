"""What the fake bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..timing import Settings

Progress = Callable[..., object]
"""Called with what is at work, as it begins."""

DESCRIPTION = """
Time operators and training steps that compute metadata alone: under FakeLikeMode, under torch's FakeTensorMode, on the
meta device, and for real.
"""


@dataclass(frozen=True)
class Options:
    """How long to measure."""

    settings: Settings = field(default_factory=Settings)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `lamina bench fake`."""
    parser = argparse.ArgumentParser(prog="lamina bench fake", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: rougher figures")
    parser.add_argument("--cpu-time", action="store_true", help="time on the CPU, for a machine shared with others")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of tables; nanoseconds")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a plot: SVG by name, else PNG")
    return parser.parse_args(arguments)


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for."""
    settings = Settings().quick() if chosen.quick else Settings()
    return Options(replace(settings, clock=time.thread_time_ns if chosen.cpu_time else time.perf_counter_ns))
