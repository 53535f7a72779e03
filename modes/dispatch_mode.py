"""A dispatch mode that watches: it sees each operator below autograd, and changes nothing.

In the handler of a mode the mode is off. So an operator on a wrapper is seen once, with the wrappers as arguments; what
the wrapper's own handler computes inside is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..subclasses.core.private import OpOverload, TorchDispatchMode, dispatch_mode_on_top, never_compile
from ..subclasses.core.schema import facts_of
from .switch import Switch


class WatchingDispatchMode(Switch, TorchDispatchMode):
    """``decompose``: an operator that arrives whole although torch has no kernel of its own for it, as ``linear`` does
    under ``inference_mode``, is taken apart: it is seen, and then its pieces, one level deeper."""

    supports_higher_order_operators = True

    def __init__(self, decompose: bool = False) -> None:
        super().__init__()
        self._decompose = decompose

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns ``run(*args, **kwargs)``, which is what ``func`` computes."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "namespace", None) == "profiler":  # marks, no computation
            return func(*args, **(kwargs or {}))
        if self._decompose and _is_opaque(func):
            return self.see(func, partial(self._inside, func), args, kwargs or {})
        return self.see(func, func, args, kwargs or {})

    def _inside(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        self._push()
        try:
            return func.decompose(*args, **kwargs)
        finally:
            self._pop()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else torch would not compile under this mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dynamo passes by our handler without torch's wrapper around it."""
        return False

    def _push(self) -> Any:
        return TorchDispatchMode.__enter__(self)

    def _pop(self) -> None:
        TorchDispatchMode.__exit__(self, None, None, None)

    def _on_top(self) -> bool:
        return dispatch_mode_on_top() is self


never_compile(WatchingDispatchMode.__torch_dispatch__)


def _is_opaque(func: Any) -> bool:
    return isinstance(func, OpOverload) and facts_of(func).composite
