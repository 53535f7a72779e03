"""A clock for tests of the bench."""

from __future__ import annotations


class FakeClock:
    """Time that passes only when someone says so, in nanoseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def spend(self, nanoseconds: int) -> None:
        self.now += nanoseconds
