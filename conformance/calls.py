"""Calls as data: what is tried on an instance, on plain tensors alike, and named in a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import torch

from ..subclasses.core.private import map_nested
from .outcome import KnownLimit, MismatchError, NotApplicable
from .refusal import OFF_GRID, is_refusal
from .subject import Subject

Operands = Mapping[str, Any]
# What torch raises, and a class should, where a call can't be answered.
REFUSALS = (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError)


@dataclass(frozen=True)
class Slot:
    """Stands for an operand that is given when the call is made."""

    name: str

    def __repr__(self) -> str:
        return self.name


X, Y, Z, OUT = Slot("x"), Slot("y"), Slot("z"), Slot("out")


@dataclass(frozen=True)
class Call:
    """``function(*args, **kwargs)``, with slots in place of operands. ``text`` is how a user would write it."""

    text: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, operands: Operands) -> Any:
        given = map_nested(lambda v: operands[v.name] if isinstance(v, Slot) else v, (self.args, dict(self.kwargs)))
        return self.function(*given[0], **given[1])

    def on(self, operands: Operands, expected: Any = "a result") -> Any:
        """The result.

        Raises:
            MismatchError: it raised something. The text names the call.
        """
        try:
            return self(operands)
        except (MismatchError, NotApplicable, KnownLimit):
            raise
        except Exception as error:
            raise MismatchError(self.text, expected, error) from error


def on(slot: Slot, name: str, *args: Any, **kwargs: Any) -> Call:
    """``slot.name(...)``; ``slot[...]`` for ``__getitem__``."""
    text = f"{slot}.{name}({_arguments(args, kwargs)})"
    if name == "__getitem__":
        text = f"{slot}[{_shown(args[0])}]"
    elif name == "__setitem__":
        text = f"{slot}[{_shown(args[0])}] = {_shown(args[1])}"
    elif name == "__iadd__":
        text = f"{slot} += {_shown(args[0])}"
    return Call(text, lambda owner, *rest, **named: methodcaller(name, *rest, **named)(owner), (slot, *args), kwargs)


def method(name: str, *args: Any, **kwargs: Any) -> Call:
    """``x.name(...)``."""
    return on(X, name, *args, **kwargs)


def item(*key: Any) -> Call:
    """``x[key]``."""
    return method("__getitem__", key[0] if len(key) == 1 else key)


def assigned(key: Any, value: Any) -> Call:
    """``x[key] = value``."""
    return method("__setitem__", key, value)


def function(called: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """``called(...)``, where ``called`` is a function of torch or an overload of an operator."""
    name = getattr(called, "__name__", str(called))
    module = "aten" if isinstance(called, _OVERLOAD) else "torch" if hasattr(torch, name) else "F"
    return Call(f"{module}.{name}({_arguments(args, kwargs)})", called, args, kwargs)


def compare(
    subject: Subject,
    calls: Iterable[Call],
    x: Any,
    plain: torch.Tensor,
    *,
    loosely: bool = False,
    of: str = "x",
    impossible: bool = False,
    refusable: Callable[[MismatchError], bool] | None = None,
    **others: Any,
) -> None:
    """Each call on ``x`` gives what it gives on ``plain``. Errors of the class that ``refusable`` accepts are none, and
    what torch refuses for ``plain`` is left out if some of it is ``impossible``. ``of`` names ``x`` in the text."""
    for call in calls:
        text = call.text if of == "x" else f"{call.text}, where x = {of}"
        try:
            expected = call({"x": plain, **others})
        except REFUSALS:
            if not impossible:
                raise
            continue
        try:
            got = call.on({"x": x, **others}, expected)
        except MismatchError as error:
            if refusable is not None and refusable(error):
                continue
            raise MismatchError(text, error.expected, error.got) from error.__cause__
        subject.same(text, got, expected, loosely=loosely)


def refused_by_step(error: MismatchError) -> bool:
    """Whether the class refused to cut its blocks, and said where it can be cut."""
    cause = error.__cause__
    return cause is not None and is_refusal(cause, OFF_GRID)


_OVERLOAD = type(torch.ops.aten.add.Tensor)


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())])


def _shown(value: Any) -> str:
    if isinstance(value, slice):
        ends = ["" if end is None else str(end) for end in (value.start, value.stop)]
        return ":".join([*ends, *([] if value.step is None else [str(value.step)])])
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, torch.Tensor):
        return f"tensor({value.tolist()})"
    return "..." if value is Ellipsis else str(value)
