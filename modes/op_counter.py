"""OpCounter: how often each operator runs in the forward, the backward and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..subclasses.logging_tensor import Tallied, Tally, current_phase
from ..subclasses.logging_tensor.module_path import module_path
from ..subclasses.logging_tensor.phase import unwatch_optimizers, watch_optimizers
from ..subclasses.logging_tensor.record import joined, name_of
from .dispatch_mode import WatchingDispatchMode
from .op_costs import OpCosts, Place, dtype_of


class NoCostsError(AttributeError):
    """The costs of a counter were asked for, and it counts calls alone."""


class OpCounter(Tallied, WatchingDispatchMode):
    """Counts the operators of its scope below autograd, by phase. Phases are found by themselves.

    An operator on a wrapper counts once, as what it is, and not again for what the wrapper computes inside.
    ``decompose=True`` counts an operator that arrives whole, as ``linear`` does under ``inference_mode``, and its
    pieces. Calls that fail count too. Entered again, it goes on counting.

    ``costs=True`` also sums floating-point operations and bytes moved, by phase, module, operator and dtype, in
    ``costs``: an operator on a wrapper by its outer shapes, its bytes by what the wrapper holds. It takes some 20 us
    for each call. Operators for which ``torch.utils.flop_counter`` has no formula are in ``costs.without_formula``;
    ``torch.utils.flop_counter.register_flop_formula`` gives them one.

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

    def __init__(self, *, decompose: bool = False, costs: bool = False) -> None:
        super().__init__(decompose)
        self.tally = Tally()
        self._costs = OpCosts() if costs else None

    @property
    def costs(self) -> OpCosts:
        """The costs.

        Raises:
            NoCostsError: they are not counted.
        """
        if self._costs is None:
            raise NoCostsError("this OpCounter counts calls alone: OpCounter(costs=True) sums operations and bytes.")
        return self._costs

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        phase, (name, overload) = current_phase(), name_of(func)
        self.tally.add(phase, name, overload)
        if self._costs is None:
            return run(*args, **kwargs)
        path = module_path(makes_nodes=True)
        result = run(*args, **kwargs)
        self._costs.add(Place(phase, path, joined(name, overload), dtype_of(args, result)), func, args, kwargs, result)
        return result

    def _begin(self) -> None:
        watch_optimizers()

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        unwatch_optimizers()
