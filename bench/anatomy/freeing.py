"""What freeing costs, by itself: results that were made before the clock ran, freed one a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FIRST = 16


class Reserve:
    """Results made in advance by `make`, and freed one by one while the clock runs.

    How many a loop will free is not known when it begins: each fills the next one's reserve with twice what it took.
    Where the reserve ran out nothing is freed, which happens only while loops are still sized.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make
        self.filled = FIRST
        self.left: list[object] = []
        self.calls = [0]

    def handler(self) -> Callable[..., Any]:
        """Hands back one, which its caller frees."""
        left, calls = self.left, self.calls

        def hand_back_one(_cls: Any, _func: Any, _types: Any, _args: Any = (), _kwargs: Any = None) -> Any:
            calls[0] += 1
            return left.pop() if left else None

        return hand_back_one

    def function(self, filler: Callable[..., object]) -> Callable[..., None]:
        """Frees one, then calls `filler`, so that a loop takes long enough with few to make."""
        left, calls = self.left, self.calls

        def free_one(*args: Any) -> None:
            calls[0] += 1
            if left:
                left.pop()
            filler(*args)

        return free_one

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Filled before, empty afterwards."""
        self.calls[0] = 0
        self.left.extend(self.make() for _ in range(self.filled))
        try:
            yield
        finally:
            self.left.clear()
            self.filled = max(FIRST, 2 * self.calls[0])
