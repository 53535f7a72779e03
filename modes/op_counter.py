"""OpCounter: how often each operator runs in the forward, the backward and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..subclasses.logging_tensor import Tallied, Tally, current_phase
from ..subclasses.logging_tensor.phase import unwatch_optimizers, watch_optimizers
from ..subclasses.logging_tensor.record import joined, name_of
from .dispatch_mode import WatchingDispatchMode


class OpCounter(Tallied, WatchingDispatchMode):
    """Counts the operators of its scope below autograd, by phase. Phases are found by themselves.

    An operator on a wrapper counts once, as what it is, and not again for what the wrapper computes inside.
    ``decompose=True`` counts an operator that arrives whole, as ``linear`` does under ``inference_mode``, and its
    pieces. Calls that fail count too. Entered again, it goes on counting.

    Under ``torch.compile``: as DispatchLog.

    >>> import torch
    >>> weight = torch.ones(3, 3, requires_grad=True)
    >>> with OpCounter() as counter:
    ...     (torch.ones(2, 3) @ weight).sum().backward()
    >>> counter.by_phase["backward"]["aten::mm"]
    1
    >>> counter.counts["aten::mm"], counter.total
    (2, 8)
    """

    def __init__(self, *, decompose: bool = False) -> None:
        super().__init__(decompose)
        self.tally = Tally()

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.tally.add(current_phase(), joined(*name_of(func)))
        return run(*args, **kwargs)

    def _begin(self) -> None:
        watch_optimizers()

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        unwatch_optimizers()
