"""FunctionLog: a record of each call of torch's public functions, before autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..subclasses.core.private import function_mode_on_top
from ..subclasses.logging_tensor import Log
from ..subclasses.logging_tensor.record import name_of
from .log_view import LogView
from .switch import Switch


class FunctionLog(LogView, Switch, TorchFunctionMode):
    """Records the calls of torch's functions and of tensor methods in its scope, as they were written: ``linear``,
    where DispatchLog has ``t`` and ``addmm``. What autograd or C++ calls does not show, nor what a recorded function
    calls.

    ``log``: where records go; without one, a new ``Log``. ``properties=True`` records reads of attributes such as
    ``.shape`` too.

    Under ``torch.compile``: eager only. Compilation happens as it does elsewhere and without graph breaks; a function
    that was compiled without the mode compiles once more, since Dynamo guards on function modes. The functions in
    compiled code do not show; a ``CompiledRegionWarning`` at the end of the scope says so.

    >>> import torch
    >>> with FunctionLog() as calls:
    ...     _ = torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
    >>> list(calls.counts)
    ['torch.ones', 'torch.nn.functional.linear']
    """

    _sees_of_compiled = "none of its functions"

    def __init__(self, log: Log | None = None, *, properties: bool = False) -> None:
        LogView.__init__(self, log)
        Switch.__init__(self)
        self._properties = properties

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling() or self._ignores(func):
            return func(*args, **(kwargs or {}))
        return self.log.observe(func, func, args, kwargs or {}, layer="function")

    def _ignores(self, func: Any) -> bool:
        name, _ = name_of(func)
        if getattr(func, "__name__", None) == "__get__":
            return not self._properties
        return name.startswith(("torch._C.", "profiler::"))  # torch's own switches and marks

    def _push(self) -> Any:
        return TorchFunctionMode.__enter__(self)

    def _pop(self) -> None:
        TorchFunctionMode.__exit__(self, None, None, None)

    def _on_top(self) -> bool:
        return function_mode_on_top() is self
