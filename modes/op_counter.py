"""OpCounter: how often each operator runs in the forward, the backward and the optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..subclasses.logging_tensor import Tally, current_phase
from ..subclasses.logging_tensor.phase import unwatch_optimizers, watch_optimizers
from ..subclasses.logging_tensor.record import Phase, name_of
from .dispatch_mode import WatchingDispatchMode

if TYPE_CHECKING:
    from rich.table import Table


class OpCounter(WatchingDispatchMode):
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
        self._tally = Tally()

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name, overload = name_of(func)
        self._tally.add(current_phase(), name if overload in ("", "default") else f"{name}.{overload}")
        return run(*args, **kwargs)

    @property
    def counts(self) -> Counter[str]:
        """Calls of each operator."""
        return self._tally.counts

    @property
    def by_phase(self) -> dict[Phase, Counter[str]]:
        """Calls of each operator in each phase."""
        return self._tally.by_phase

    @property
    def total(self) -> int:
        return self._tally.total

    def to_json(self) -> dict[str, Any]:
        """Counts as plain types."""
        return self._tally.to_json()

    def __str__(self) -> str:
        return self._tally.table()

    def __rich__(self) -> Table:
        return self._tally.__rich__()

    def _begin(self) -> None:
        watch_optimizers()

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        unwatch_optimizers()
