"""How long a run takes, roughly: for the bar, and for who asks before starting it."""

from __future__ import annotations

from collections.abc import Iterable

from ..timing import Settings
from .conditions import EAGER, MODEL, Group

CHECKING_S, EAGER_S, PLAIN_S, WRAPPED_S, QUANTIZED_S, FURTHER_GRAPHS = 0.3, 0.001, 0.03, 0.06, 0.16, 1.4
"""Seconds to build and check a trial; and by parameter: eager and layer, compiled plain, wrapped, quantized."""
CALIBRATING_S, CALL_S = 3.0, {True: 60e-6, False: 25e-6}
"""Seconds to find how many calls fill a loop; of one step by parameter and layer, eager or not."""


def seconds_of_trial(group: Group, parameters: int, layers: int, *, quantized: bool = False) -> float:
    """To build a trial, to compile it, and to check it."""
    if group.mode == EAGER:
        return CHECKING_S + EAGER_S * parameters * (1 + layers)
    each = QUANTIZED_S if quantized else WRAPPED_S if layers else PLAIN_S
    return CHECKING_S + each * parameters * (1 if group.mode == MODEL else FURTHER_GRAPHS)


def seconds_of_timing(group: Group, trials: Iterable[tuple[int, int]], settings: Settings) -> float:
    """To time trials of so many parameters and layers in turns, each once untimed before."""
    a_round = sum(2 * CALL_S[group.mode == EAGER] * parameters * (1 + layers) for parameters, layers in trials)
    return CALIBRATING_S + max(settings.seconds, settings.fewest * a_round)
