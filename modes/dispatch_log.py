"""DispatchLog: a record of each operator, as it reaches the backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..subclasses.logging_tensor import Log
from .dispatch_mode import WatchingDispatchMode
from .log_view import LogView


class DispatchLog(LogView, WatchingDispatchMode):
    """Records the operators of its scope below autograd: those of the backward and of the optimizer too.

    ``log``: where records go; without one, a new ``Log``. ``decompose=True`` also records what an operator that arrives
    whole, such as ``linear`` under ``inference_mode``, consists of, one level deeper.

    Under ``torch.compile``: compilation happens as it does elsewhere. Compiled code shows by the operators that it
    sends through the dispatcher; a ``CompiledRegionWarning`` at the end of the scope says so.

    >>> import torch
    >>> with DispatchLog() as ops:
    ...     _ = torch.ones(2, 3).mul(2).sum()
    >>> print(ops.log.records[1])
    aten::mul.Tensor(float32[2, 3], 2) -> float32[2, 3]  [forward dispatch]
    """

    def __init__(self, log: Log | None = None, *, decompose: bool = False) -> None:
        LogView.__init__(self, log)
        WatchingDispatchMode.__init__(self, decompose)
        self._observe = self.log.observe

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._observe(func, run, args, kwargs, layer="dispatch")
