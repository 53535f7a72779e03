"""Which log gets a record: the one that a handle names, else the innermost in scope. Nearly free if there is none."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..core.private import backward_context
from .module_path import forget_nodes
from .phase import unwatch_optimizers, watch_optimizers

if TYPE_CHECKING:
    from .log import Log

# The logs that can get a record at all, by token: in scope somewhere, or named by a handle; and how often. While it is
# empty, looking for a log costs one truth test: ``LIVE and active_log(handle)`` takes 5 ns.
LIVE: dict[str, int] = {}

_lock = threading.Lock()
_registry: weakref.WeakValueDictionary[str, Log] = weakref.WeakValueDictionary()
_scopes: contextvars.ContextVar[tuple[Log, ...]] = contextvars.ContextVar("lamina.scopes", default=())


class _Thread(threading.local):
    """``muted``: sinks run in this thread; what they compute is not recorded."""

    def __init__(self) -> None:
        self.muted = False


THREAD = _Thread()
_forks = [0]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(0))


def forks() -> int:
    """How many forks this process is away from the first: a log does not go on in a child. (``getpid``: 0.2 us.)"""
    return len(_forks)


@dataclass(frozen=True, slots=True)
class LogHandle:
    """Names a log. Compares by value; copies and pickles as the text that it is. In another process, or once the log is
    closed or gone, it names nothing, and what is recorded through it goes nowhere."""

    token: str

    def resolve(self) -> Log | None:
        """The log, or None where it is gone, or lives in another process."""
        return _registry.get(self.token)


torch.serialization.add_safe_globals([LogHandle])  # it is part of what a LoggingTensor saves


def active_log(handle: LogHandle | None = None) -> Log | None:
    """The log that gets what happens here, if any. None while a sink of a log runs in this thread."""
    if not LIVE or THREAD.muted:
        return None
    if handle is not None:
        return _registry.get(handle.token)
    scopes = _scopes.get() or _scopes_of_backward()
    return scopes[-1] if scopes else None


def _scopes_of_backward() -> tuple[Log, ...]:
    """In a device thread of autograd: the scopes of the thread that called backward."""
    context = backward_context()
    return () if context is None else context.get(_scopes, ())


def enter_scope(log: Log) -> None:
    _scopes.set((*_scopes.get(), log))


def leave_scope(log: Log) -> None:
    """Takes the log out where it was entered last, whatever was entered since."""
    scopes = list(_scopes.get())
    for place in reversed(range(len(scopes))):
        if scopes[place] is log:
            del scopes[place]
            break
    _scopes.set(tuple(scopes))


def hold(token: str) -> None:
    """The log may get records from now on: optimizers are watched."""
    with _lock:
        LIVE[token] = LIVE.get(token, 0) + 1
    watch_optimizers()


def release(token: str) -> bool:
    """Undoes one ``hold``. True: it was the last of this log."""
    unwatch_optimizers()
    with _lock:
        LIVE[token] -= 1
        last = LIVE[token] == 0
        if last:
            del LIVE[token]
        if not LIVE:
            forget_nodes()
    return last


def register(token: str, log: Log) -> None:
    _registry[token] = log


def unregister(token: str) -> None:
    _registry.pop(token, None)


class muted:  # noqa: N801 - reads as the scope that it is
    """While a sink runs: what it computes is not recorded."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = THREAD.muted
        THREAD.muted = True

    def __exit__(self, *error: object) -> None:
        THREAD.muted = self._before
