"""Which phase of training runs: forward, backward or optimizer. Found by itself, for each thread.

*Backward*: autograd runs a graph in this thread, be it through ``backward()``, ``torch.autograd.grad``, or another one
nested in a hook. What a hook, a custom ``backward`` or gradient checkpointing computes meanwhile counts as backward,
recomputed forwards included: that is when its time is spent.

*Optimizer*: inside the ``step`` of a ``torch.optim.Optimizer``. A closure given to ``step`` counts as what it does,
forward or backward. A ``step`` of a class that does not derive from Optimizer looks like a forward.

Steps are seen by torch's hooks for all optimizers. They are installed while somebody watches, and not before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from ..core.private import backward_id
from .record import Phase


class _Step(NamedTuple):
    """A running ``step``: the frame that called its hooks, and the backward it runs in (-1: in none)."""

    frame: FrameType
    backward: int


class _Thread(threading.local):
    """The running steps of a thread, innermost last. None marks a closure, which is no part of its step."""

    def __init__(self) -> None:
        self.steps: list[_Step | None] = []


_thread = _Thread()


def current_phase() -> Phase:
    """The phase in which this thread is. Optimizers show only between ``watch_optimizers()`` and
    ``unwatch_optimizers()``."""
    steps = _thread.steps
    if steps:
        step = _innermost(steps)
        if step is not None and step.backward == backward_id():
            return "optimizer"
    return "forward" if backward_id() == -1 else "backward"


def _innermost(steps: list[_Step | None]) -> _Step | None:
    """The innermost running step. One that raised ran no post hook: it is over if its frame is not on the stack."""
    while steps:
        step = steps[-1]
        if step is None or _is_running(step.frame):
            return step
        steps.pop()
    return None


def _is_running(frame: FrameType) -> bool:
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is not None


def _before_step(_: Optimizer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    if torch.compiler.is_compiling():  # traced, the hook would be part of the compiled step
        return None
    _thread.steps.append(_Step(sys._getframe(1), backward_id()))
    if len(args) > 1 and callable(args[1]):
        return (args[0], _outside_step(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _outside_step(kwargs["closure"])}
    return None


def _after_step(*_: Any) -> None:
    if torch.compiler.is_compiling():
        return
    steps, frame = _thread.steps, sys._getframe(1)
    for level in reversed(range(len(steps))):
        step = steps[level]
        if step is not None and step.frame is frame:
            del steps[level:]  # with it those of inner steps that raised and were caught
            return


def _outside_step(closure: Callable[[], Any]) -> Callable[[], Any]:
    @wraps(closure, updated=())
    def run() -> Any:
        steps = _thread.steps
        level = len(steps)
        steps.append(None)
        try:
            return closure()
        finally:
            del steps[level:]

    return run


class _Watch:
    """The installed hooks, and how many watch through them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watchers = 0
        self.hooks: list[RemovableHandle] = []


_watch = _Watch()


def watch_optimizers() -> None:
    """Makes steps of optimizers show as such, until ``unwatch_optimizers()`` was called as often."""
    with _watch.lock:
        _watch.watchers += 1
        if _watch.watchers == 1:
            pre, post = register_optimizer_step_pre_hook(_before_step), register_optimizer_step_post_hook(_after_step)
            _watch.hooks = [pre, post]


def unwatch_optimizers() -> None:
    with _watch.lock:
        _watch.watchers -= 1
        if _watch.watchers == 0:
            for hook in _watch.hooks:
                hook.remove()
            _watch.hooks = []
            _thread.steps.clear()
