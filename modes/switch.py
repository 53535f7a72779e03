"""What all our modes share: ``with``, or ``enable()`` and ``disable()``; a warning after compiled code; an orderly end.

A mode that is still on when the process ends is switched off first: torch tears itself down in an order in which a mode
that is called then may crash.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from types import TracebackType
from typing import Any

from .compiled_code import CompiledCalls, CompiledRegionWarning


class Switch:
    """Mixed into a torch mode, before it. Subclasses say what starts and ends with them, and who is on top."""

    _sees_of_compiled = "only what it sends through the dispatcher"

    def __init__(self) -> None:
        super().__init__()
        self._thread: int | None = None
        self._compiled = CompiledCalls()

    def __enter__(self) -> Any:
        name = type(self).__name__
        if self._thread is not None:
            raise RuntimeError(f"this {name} is on already: it would see each call twice. Make a second {name}.")
        self._begin()
        self._compiled.start()
        self._thread = threading.get_ident()
        _on.append(self)
        return self._push()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pop()
        _on.remove(self)
        self._thread = None
        calls = self._compiled.stop()
        self._end(raising=error is None)
        if calls and error is None:
            self._warn(calls)

    def enable(self) -> None:
        """Switches the mode on in this thread, as ``with`` does, until ``disable()`` or the end of the process."""
        self.__enter__()

    def disable(self) -> None:
        """Switches the mode off. Modes that were switched on later in this thread have to be off before."""
        if self._thread is None:
            raise RuntimeError(f"this {type(self).__name__} is not on: nothing to switch off. enable() switches it on.")
        if not self._on_top():
            raise RuntimeError(
                f"this {type(self).__name__} can't be switched off here: modes are left in the reverse order in which "
                "they were entered, in the thread that entered them, and another one is on top."
            )
        self.__exit__(None, None, None)

    def _warn(self, calls: int) -> None:
        name = type(self).__name__
        warnings.warn(
            f"compiled code ran under {name} ({calls} times): {name} saw {self._sees_of_compiled}. To record the "
            "graphs, compile with torch.compile(..., backend=lamina.modes.logged_backend('inductor', log)); to see "
            "each operator, run eagerly under torch.compiler.set_stance('force_eager').",
            CompiledRegionWarning,
            stacklevel=3,
        )

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self, *, raising: bool) -> None:
        raise NotImplementedError

    def _push(self) -> Any:
        raise NotImplementedError

    def _pop(self) -> None:
        raise NotImplementedError

    def _on_top(self) -> bool:
        raise NotImplementedError


_on: list[Switch] = []


def _switch_off() -> None:
    """At exit, in this thread: innermost first, until a mode of somebody else is in the way."""
    mine = [mode for mode in _on if mode._thread == threading.get_ident()]
    for mode in reversed(mine):
        if mode._on_top():
            mode.disable()


atexit.register(_switch_off)
