"""Runs an op one level down, on the inner tensors of a one-tensor wrapper, and wraps the result again.

This is the hot path of every transparent type. What can be known from the schema is settled when the runner is made,
once per class and op; a call does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from .errors import LayoutError
from .geometry import alias, carry_bits, match_geometry
from .gradients import keep_gradient
from .private import call_of, with_math_bits
from .schema import Argument, OpFacts, Result, value_of

Runner = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def unwrapping(cls: Any, facts: OpFacts) -> Runner:
    """The runner of ``facts.op`` for the one-tensor class ``cls``."""
    positions = tuple(a.index for a in facts.tensors)
    if facts.flat and facts.keeps_math_bits and positions == (0,):
        return _one_view(cls, facts) if facts.results[0].view_of else _one(cls, facts)
    if facts.flat and facts.keeps_math_bits and positions == (0, 1):
        return _two(cls, facts)
    if facts.flat_write and facts.keeps_math_bits and positions in ((0,), (0, 1)):
        return _write(cls, facts)
    return _any(cls, facts)


def _one(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = args[0]
        return rewrap(cls, like, call(inner_of(like), *args[1:], **kwargs))

    return run


def _one_view(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = args[0]
        inner = inner_of(like)
        view = call(inner, *args[1:], **kwargs)
        if view is inner:
            return like
        outer = rewrap(cls, like, view)
        carry_bits(outer, view)
        alias(outer, like)
        return outer

    return run


def _two(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second, *rest = args
        if type(second) is cls:
            like, right = second, inner_of(second)
        else:
            like, right = first, second
            if isinstance(second, torch.Tensor):
                keep_gradient(second)
        if type(first) is cls:
            like, left = first, inner_of(first)
        else:
            left = first
            keep_gradient(first)
        return rewrap(cls, like, call(left, right, *rest, **kwargs))

    return run


def _write(cls: Any, facts: OpFacts) -> Runner:
    call, inner_of = call_of(facts.op), _reader(cls)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target, *rest = args
        if rest and type(rest[0]) is cls:
            rest[0] = inner_of(rest[0])
        elif rest and isinstance(rest[0], torch.Tensor):
            keep_gradient(rest[0])
        call(inner_of(target) if type(target) is cls else target, *rest, **kwargs)
        return target

    return run


def _any(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)
    written, results, watch_bits = facts.written, facts.results, not facts.keeps_math_bits

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        peel = Peel(cls, inner_of)
        inner_args = [peel(a) for a in args]
        inner_kwargs = {k: peel(a) for k, a in kwargs.items()} if kwargs else kwargs
        if watch_bits and peel.complex:
            out = with_math_bits(call, *inner_args, **inner_kwargs)
        else:
            out = call(*inner_args, **inner_kwargs)
        if written:
            _settle_writes(cls, facts, args, kwargs)
        if not results:
            return out
        return settle(results, out, args, kwargs, lambda inner: _wrap(cls, rewrap, peel.like, inner))

    return run


class Peel:
    """Takes one level of ``cls`` off the values of a call, lists included, and remembers what it met."""

    __slots__ = ("cls", "complex", "inner_of", "like")

    def __init__(self, cls: type, inner_of: Callable[[Any], Any]) -> None:
        self.cls, self.inner_of = cls, inner_of
        self.like: Any = None
        self.complex = False

    def __call__(self, value: Any) -> Any:
        if type(value) is self.cls:
            if self.like is None:
                self.like = value
            inner = self.inner_of(value)
            if inner.is_complex() or inner.is_neg():
                self.complex = True
            return inner
        if isinstance(value, torch.Tensor):
            if value.is_complex():
                self.complex = True
            keep_gradient(value)
            return value
        if isinstance(value, (list, tuple)):
            return [self(v) for v in value]
        return value


def settle(
    results: tuple[Result, ...], out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrap: Callable[[Any], Any]
) -> Any:
    """Gives each result its identity: an argument itself, a view that shares its storage, or a new wrapper."""
    if len(results) == 1:
        return _settled(results[0], out, args, kwargs, wrap)
    return tuple(_settled(r, o, args, kwargs, wrap) for r, o in zip(results, out, strict=True))


def _settled(
    result: Result, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrap: Callable[[Any], Any]
) -> Any:
    if result.same_as is not None:
        return value_of(result.same_as, args, kwargs)
    if not result.tensor:
        return out
    base = value_of(result.view_of, args, kwargs) if result.view_of is not None else None
    if result.listed:
        return [_viewed(wrap(o), base) for o in out]
    return _viewed(wrap(out), base) if isinstance(out, torch.Tensor) else out


def _viewed(outer: Any, base: Any) -> Any:
    if base is not None and type(outer) is type(base):
        alias(outer, base)
    return outer


def _wrap(cls: Any, rewrap: Callable[..., Any], like: Any, inner: torch.Tensor) -> Any:
    if inner.layout is not torch.strided:
        raise LayoutError(cls, cls.declaration.single.name, inner.layout)
    outer = rewrap(cls, like, inner)
    carry_bits(outer, inner)
    return outer


def _settle_writes(cls: type, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not facts.changes_geometry:
        return
    for wrapper in written_wrappers(facts.written, cls, args, kwargs):
        match_geometry(wrapper)


def written_wrappers(
    written: tuple[Argument, ...], cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The instances of ``cls`` that a call writes to."""
    found = []
    for argument in written:
        value = value_of(argument, args, kwargs)
        found += [v for v in (value if argument.listed and value else [value]) if type(v) is cls]
    return found


def _reader(cls: Any) -> Callable[[Any], Any]:
    return attrgetter(cls.declaration.single.name)
