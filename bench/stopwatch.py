"""A stopwatch: nanoseconds that so many calls of a variant take, by a clock of the host or by events of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any

Clock = Callable[[], int]


@dataclass(frozen=True)
class Variant:
    """One thing to time: `function(*args)`, called in a loop inside `scope()`.

    `renew` builds fresh arguments. With it, none of the places that memory happens to lie at decides the figure:
    they change every few rounds.
    """

    name: str
    function: Callable[..., object]
    args: tuple[Any, ...] = ()
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    renew: Callable[[], tuple[Any, ...]] | None = None


Stopwatch = Callable[[Variant, int], int]


def host_stopwatch(clock: Clock) -> Stopwatch:
    """Time by a clock of the host: wall time or a thread's CPU time."""

    def stopwatch(variant: Variant, calls: int) -> int:
        function, args = variant.function, variant.args
        with variant.scope():
            start = clock()
            for _ in repeat(None, calls):
                function(*args)
            return clock() - start

    return stopwatch
