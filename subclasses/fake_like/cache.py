"""The plans of all calls that were seen: bounded, safe in threads, to be looked into, cleared, checked, switched off.

A look-up is one ``dict.get``. Plans that were made first go first: where there are too many, the older half goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from ..core.errors import LaminaError
from .plan import Facts, Plan, Run

Key = tuple[Any, ...]
LIMIT = 32768  # 1.5 kB each: some 50 MB. A training step of a decoder with 80 layers needs 500


class StaleReplayError(LaminaError, RuntimeError):
    """A call that was computed again gave other metadata than its replay: the signature lacks what decided it."""

    def __init__(self, op: object, replayed: Facts, computed: Facts) -> None:
        self.op, self.replayed, self.computed = op, replayed, computed
        super().__init__(f"{op}: replayed as {replayed}, and computed again as {computed}. Please report it.")


class Replay(NamedTuple):
    """What the cache holds of one signature: the operator, the arguments and global state, and what the results are."""

    op: object
    arguments: Key
    results: Facts


class Info(NamedTuple):
    """``hits`` and ``misses`` since the last ``clear`` (threads may lose a few hits), how many plans there are, and may
    be."""

    hits: int
    misses: int
    size: int
    limit: int


class Replays:
    """``lamina.subclasses.fake_like.replays`` is the one of the process. Iterating gives what is in it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.hits = self.misses = 0
        self._plans: dict[Key, Run] = {}
        self._facts: dict[Key, Facts] = {}
        self._lock = threading.Lock()
        self._suspended: list[str] = []
        # An attribute, not a method: a call less on the hot path.
        self.find: Callable[[Key], Run | None] = self._plans.get

    def learn(self, key: Key, plan: Plan) -> None:
        """Remembers the plan of a call. ``key`` begins with the facts of the operator.

        Raises:
            StaleReplayError: inside ``checked()``, where another plan is known.
        """
        with self._lock:
            known = self._facts.get(key)
            self.hits += known is not None
            self.misses += known is None
            if "checked" in self._suspended and known is not None and known != plan.facts:
                raise StaleReplayError(key[0].op, known, plan.facts)
            if "off" in self._suspended:
                return
            self._facts[key], self._plans[key] = plan.facts, plan.run
            if len(self._plans) > self.limit:
                for old in list(islice(self._plans, len(self._plans) // 2)):
                    del self._plans[old], self._facts[old]

    def clear(self) -> None:
        """Forgets all plans, and begins to count anew."""
        with self._lock:
            self._plans.clear()
            self._facts.clear()
            self.hits = self.misses = 0

    def info(self) -> Info:
        return Info(self.hits, self.misses, len(self._plans), self.limit)

    def off(self) -> Any:
        """A scope in which every call is computed, and none remembered; in all threads."""
        return self._without_replay("off")

    def checked(self) -> Any:
        """A scope in which every call is computed, also where it could be replayed, and compared with the plan that is
        known; in all threads.

        Raises:
            StaleReplayError: from the call, if they differ.
        """
        return self._without_replay("checked")

    @contextmanager
    def _without_replay(self, why: str) -> Iterator[None]:
        with self._lock:
            self._suspended.append(why)
            self.find = _nothing
        try:
            yield
        finally:
            with self._lock:
                self._suspended.remove(why)
                self.find = _nothing if self._suspended else self._plans.get

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Replay]:
        with self._lock:
            items = list(self._facts.items())
        return iter([Replay(key[0].op, key[1:], facts) for key, facts in items])


def _nothing(key: Key) -> None:
    return None


replays = Replays()
