"""What the fake bench is asked to measure, and its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from ..command import bench_parser, clocked
from ..timing import Settings

# After 30 ms of torch's own fakes the caches hold nothing of a quicker step, and a training loop finds itself there:
# each is called once before it is timed.
STEADY = Settings(lead_below_ns=20_000_000)
DESCRIPTION = """
Time operators and training steps that compute metadata alone: under FakeLikeMode, under torch's FakeTensorMode, on the
meta device, and for real.
"""


@dataclass(frozen=True)
class Options:
    """How long to measure."""

    settings: Settings = field(default_factory=lambda: STEADY)


def parser() -> argparse.ArgumentParser:
    """The command line of `lamina bench fake`."""
    return bench_parser("fake", DESCRIPTION)


def chosen_options(chosen: argparse.Namespace) -> Options:
    """What the command line asked for."""
    return Options(clocked(STEADY.quick() if chosen.quick else STEADY, chosen))
