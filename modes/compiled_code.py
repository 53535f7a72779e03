"""Compiled code under a mode: noticed, so that the mode can say that it did not see everything.

Our modes never switch compilation off. What ``torch.compile`` made runs under them as it does elsewhere, and a dispatch
mode sees what it sends through the dispatcher: with the backend ``aot_eager`` each operator, with ``inductor`` the
kernels that it calls from outside, such as matrix products, and none of those that it made itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..subclasses.core.private import frames_compiled, on_compiled_calls


class CompiledRegionWarning(UserWarning):
    """Compiled code ran under a mode, which saw only a part of it, or nothing."""


class CompiledCalls:
    """How many calls of compiled functions this thread makes between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.calls = 0
        self._frames = 0

    def start(self) -> None:
        self.calls, self._frames = 0, frames_compiled()
        _thread.watches.append(self)
        _hook.acquire()

    def stop(self) -> int:
        """The calls since ``start``. Where Dynamo was loaded later, the compilations since then: as telling."""
        observed = _hook.release()
        _thread.watches.remove(self)
        return self.calls if observed else frames_compiled() - self._frames


class _Thread(threading.local):
    def __init__(self) -> None:
        self.watches: list[CompiledCalls] = []


class _Hook:
    """Dynamo's calls are observed while anybody watches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers = 0
        self._undo: Callable[[], None] | None = None

    def acquire(self) -> None:
        with self._lock:
            self._watchers += 1
            if self._undo is None:
                self._undo = on_compiled_calls(_count)

    def release(self) -> bool:
        """Whether calls were observed."""
        with self._lock:
            self._watchers -= 1
            observed = self._undo is not None
            if self._undo is not None and self._watchers == 0:
                self._undo()
                self._undo = None
            return observed


def _count() -> None:
    for watch in _thread.watches:
        watch.calls += 1


_thread = _Thread()
_hook = _Hook()
