"""The one guarded path by which every call enters a class and leaves it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch

from .errors import RuleTypeError
from .fields import inner_tensors, is_wrapper, is_wrapper_class, tensors_in
from .geometry import match_geometry
from .gradients import keep_gradient
from .private import TRACERS, OpOverload, never_compile, with_math_bits
from .report import missing_rule
from .results import check_result
from .rules import Rule
from .schema import Kind, OpFacts
from .table import Entry
from .unwrap import Runner, settle, where_views_work, written_wrappers


def dispatch(
    cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """``__torch_dispatch__``: one look-up and a call."""
    entry = cls._table[op]
    if len(types) == 1:
        entry.hits += 1
        try:
            out = entry.run(args, kwargs or {})
        except TypeError as error:
            raise RuleTypeError(op, cls, entry.where, error) from error
    else:
        out = _arbitrate(cls, op, types, args, kwargs or {})
    if out is NotImplemented:
        raise missing_rule(entry, types, args, kwargs or {})
    return out


never_compile(dispatch)


class _Asked(threading.local):
    """The foreign classes that this thread is asking, each with the call that it is asked about."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []


_asked = _Asked()


def _ask_foreign(
    candidate: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The answer of a class that is not ours. One that hands the very call on, as DTensor does where it sees other
    types, would be asked again, and so on without end: the second time it has declined."""
    call = (candidate, op, *map(id, tensors_in((args, kwargs))))
    if call in _asked.calls:
        return NotImplemented
    _asked.calls.append(call)
    try:
        return candidate.__torch_dispatch__(op, types, args, kwargs)
    finally:
        _asked.calls.pop()


def _arbitrate(cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asks every class that could answer, in order of precedence; NotImplemented if all decline.

    All of it happens in the first lamina handler that torch asks, so that none of them has to return NotImplemented to
    torch: Python's operators would make a plain ``False`` of it.
    """
    candidates = _order(cls, types)
    if len(candidates) > 1:  # the backward mixes classes, too
        for tensor in tensors_in((args, kwargs)):
            keep_gradient(tensor)
    for candidate in candidates:
        where = "its __torch_dispatch__"
        try:
            if is_wrapper_class(candidate):
                entry: Entry = candidate._table[op]
                entry.hits += 1
                where = entry.where
                out = entry.run(args, kwargs)
            else:
                out = _ask_foreign(candidate, op, types, args, kwargs)
        except TypeError as error:
            raise RuleTypeError(op, candidate, where, error) from error
        if out is not NotImplemented:
            return out
    return NotImplemented


def _order(first: Any, types: tuple[type, ...]) -> list[Any]:
    """Foreign wrappers that torch has not asked yet, then ours: higher precedence first, else in torch's order.
    Tensor types of torch's tracers count as plain."""
    foreign, ours = [], [first]
    for later in types[types.index(first) + 1 :] if first in types else ():
        if is_wrapper_class(later):
            ours.append(later)
        elif not issubclass(later, TRACERS):
            foreign.append(later)
    return foreign + sorted(ours, key=attrgetter("precedence"), reverse=True)


def by_rule(cls: Any, facts: OpFacts, rule: Rule) -> Runner:
    """The runner of an author's rule, with what authors forget: aliasing, identity of written arguments, math bits."""
    op, call, takes_tuple = facts.op, rule.call, isinstance(rule.key, Kind)
    mixes = len(facts.tensors) > 1 or any(a.listed for a in facts.tensors)  # another class may be among the operands

    def invoke(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(op, args, kwargs) if takes_tuple else call(op, *args, **kwargs)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if mixes and torch.is_grad_enabled():
            for tensor in tensors_in((args, kwargs)):
                if type(tensor) is not cls or _holds_wrappers(tensor):
                    keep_gradient(tensor)
        out = with_math_bits(invoke, args, kwargs) if _needs_bits(facts, args, kwargs) else invoke(args, kwargs)
        if out is NotImplemented:
            return out
        if facts.changes_geometry:
            for wrapper in written_wrappers(facts.written, cls, args, kwargs):
                match_geometry(wrapper)
        if not facts.results:
            return out
        check_result(cls, facts, rule, out, args, kwargs)
        return settle(facts.results, out, args, kwargs, lambda value: _own(value, args))

    return where_views_work(facts, run)


def _holds_wrappers(wrapper: Any) -> bool:
    """Its rules compute with inner wrappers then, and that is what arrives as its gradient."""
    return wrapper.requires_grad and any(is_wrapper(t) for t in inner_tensors(wrapper))


def _needs_bits(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if facts.keeps_math_bits:
        return False
    for value in args:  # no generator for the usual operand: 1 us each
        if isinstance(value, torch.Tensor):
            if value.is_complex() or value.is_neg():
                return True
        elif isinstance(value, (list, tuple)) and any(t.is_complex() or t.is_neg() for t in tensors_in(value)):
            return True
    return bool(kwargs) and any(t.is_complex() or t.is_neg() for t in tensors_in(kwargs))


def _own(value: Any, args: tuple[Any, ...]) -> Any:
    """A rule's result, never an inner tensor itself: autograd would set ``requires_grad`` on it."""
    if isinstance(value, torch.Tensor) and not is_wrapper(value) and _is_held(value, args):
        return torch.ops.aten.alias.default(value)
    return value


def _is_held(value: torch.Tensor, args: Sequence[Any]) -> bool:
    for arg in args:
        if isinstance(arg, (list, tuple)):
            if _is_held(value, arg):
                return True
        elif is_wrapper(arg):
            for held in vars(arg).values():
                if held is value:
                    return True
    return False
