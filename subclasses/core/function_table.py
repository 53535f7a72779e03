"""The function-level table: rules for public torch functions, before autograd.

``__torch_function__`` costs 5.4 us an op and 1.7 us a ``.shape``, so a class keeps it disabled, in C, until its table
(or an ancestor's) has an entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .errors import RegistrationError, RuleConflictError, RuleTypeError
from .fields import is_wrapper_class
from .private import OpOverload, OpOverloadPacket, disabled_torch_function, never_compile, without_torch_function
from .rules import check_rule, place_of


class FunctionBook(dict[Any, Callable[..., Any]]):
    """The function rules that one class registered itself."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner

    def add(self, keys: tuple[Any, ...], rule: Callable[..., Any], *, override: bool) -> None:
        check_rule(rule)
        if not keys:
            raise RegistrationError(
                "implements_function() needs at least one function, e.g. torch.nn.functional.linear"
            )
        for key in keys:
            if isinstance(key, (OpOverload, OpOverloadPacket)) or not callable(key):
                raise RegistrationError(
                    f"implements_function takes public functions such as torch.nn.functional.linear, got {key!r}. "
                    "Operators belong in implements()."
                )
            if key not in _overridable():
                raise RegistrationError(
                    f"torch never asks a tensor type about {getattr(key, '__qualname__', key)}, so the rule would "
                    "never run. torch.overrides.get_overridable_functions() lists what it asks about."
                )
            if key in self and not override:
                raise RuleConflictError(self.owner, getattr(key, "__name__", key), place_of(self[key]), place_of(rule))
        self.update(dict.fromkeys(keys, rule))


def torch_function(
    cls: Any, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """``__torch_function__`` of a class whose table is filled. Asks the nearest rule of each lamina class in the call,
    higher precedence first; where all decline, the ordinary path, and there the op table.

    Raises:
        RuleTypeError: a rule raised a TypeError, which Python's operators would swallow.
    """
    ours = sorted((t for t in types if is_wrapper_class(t)), key=lambda t: -t.precedence)
    for owner in ours or [cls]:
        rule = _nearest(owner, func)
        if rule is None:
            continue
        try:
            with without_torch_function():  # inside a rule the table is off: func runs the ordinary path
                out = rule(func, *args, **(kwargs or {}))
        except TypeError as error:
            raise RuleTypeError(getattr(func, "__name__", func), owner, place_of(rule), error) from error
        if out is not NotImplemented:
            return out
    with without_torch_function():
        return func(*args, **(kwargs or {}))


never_compile(torch_function)


def _nearest(owner: Any, func: Callable[..., Any]) -> Callable[..., Any] | None:
    for klass in owner.__mro__:
        rule: Callable[..., Any] | None = klass.__dict__.get("_function_rules", {}).get(func)
        if rule is not None:
            return rule
    return None


@functools.cache
def _overridable() -> frozenset[Any]:
    found = torch.overrides.get_overridable_functions()
    return frozenset(function for functions in found.values() for function in functions)


def update_torch_function(cls: Any) -> None:
    """Turns ``__torch_function__`` of ``cls`` and its children on or off, as their tables are filled or empty."""
    filled = any(klass.__dict__.get("_function_rules") for klass in cls.__mro__)
    cls.__torch_function__ = classmethod(torch_function) if filled else disabled_torch_function
    for child in cls.__subclasses__():
        update_torch_function(child)
