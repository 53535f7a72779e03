"""Runs an op one level down, on the inner tensors of a one-tensor wrapper, and wraps the result again.

This is the hot path of every transparent type. What can be known from the schema is settled when the runner is made,
once per class and op; a call does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from sys import getrefcount
from typing import Any

import torch
from torch.autograd.graph import increment_version

from .errors import LayoutError
from .geometry import carry_bits, match_bits, match_geometry
from .gradients import HELD_BY_TORCH, HELD_ONCE, keep_gradient, shares_nothing
from .private import call_of, is_taking_gradient, outside_inference_mode, share_storage, with_math_bits
from .schema import Argument, Kind, OpFacts, Result, value_of

_DETACH = torch.ops.aten.detach.default

# Bound here: an attribute of torch costs 25 ns more, in each view.
_inference_mode_is_on = torch.is_inference_mode_enabled

Runner = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def where_views_work(facts: OpFacts, run: Runner) -> Runner:
    """``run``; for view ops as if inference mode were off: torch refuses one made there of a wrapper made outside."""
    if Kind.VIEW not in facts.kinds:
        return run

    def viewing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return outside_inference_mode(run, args, kwargs) if _inference_mode_is_on() else run(args, kwargs)

    return viewing


def counting_versions(facts: OpFacts, run: Runner) -> Runner:
    """``run``; the tensors of lists that it wrote count the write. Torch counts for single arguments only: autograd
    would take what it saved of the others for unchanged, and give wrong gradients without a word."""
    lists = tuple(a for a in facts.written if a.listed)
    if not lists:
        return run

    def counting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = run(args, kwargs)
        for argument in lists:
            increment_version(value_of(argument, args, kwargs) or ())
        return out

    return counting


def unwrapping(cls: Any, facts: OpFacts) -> Runner:
    """The runner of ``facts.op`` for the one-tensor class ``cls``."""
    positions = tuple(a.index for a in facts.tensors)
    if facts.flat and positions == (0,) and facts.results[0].view_of:
        view = _view(cls, facts)
        return _detach(cls, view) if facts.op is _DETACH else view
    if facts.flat and facts.keeps_math_bits and positions == (0,):
        return _one(cls, facts)
    if facts.flat and facts.keeps_math_bits and positions == (0, 1):
        return _two(cls, facts)
    if facts.flat_write and facts.keeps_math_bits and positions in ((0,), (0, 1)):
        return _write(cls, facts)
    if facts.flat and not facts.chooses_layout and not any(a.keyword_only for a in facts.tensors):
        return _few(cls, facts)
    return where_views_work(facts, _any(cls, facts))


def _view(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of, toggles = call_of(facts.op), cls._generated.rewrap, _reader(cls), facts.toggles_bits
    alone = len(facts.arguments) == 1  # detach, t: nothing to pass on

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _inference_mode_is_on():
            return outside_inference_mode(run, args, kwargs)
        like = args[0]
        inner = inner_of(like)
        view = call(inner) if alone else call(inner, *args[1:], **kwargs)
        if view is inner:
            return like
        outer = rewrap(cls, like, view)
        if toggles or like._l_bits:
            carry_bits(outer, view)
        share_storage(outer, like)
        return outer

    return run


def _detach(cls: Any, view: Runner) -> Runner:
    """Autograd puts a gradient that only it holds into a leaf's ``grad`` by detaching it. In a compiled step that is a
    third of what a wrapped parameter costs, and the gradient itself does as well: nobody has another hold of it. Where
    the tensor in it is somebody else's, too, ``grad`` gets a copy: torch looks at the wrapper alone."""
    inner_of, rewrap = _reader(cls), cls._generated.rewrap

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getrefcount(args[0]) > HELD_BY_TORCH or not is_taking_gradient():
            return view(args, kwargs)
        if getrefcount(inner_of(args[0])) == HELD_ONCE and shares_nothing(inner_of(args[0])):
            return args[0]
        return _wrap(cls, rewrap, args[0], inner_of(args[0]).clone())

    return run


def _one(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = args[0]
        return rewrap(cls, like, call(inner_of(like), *args[1:], **kwargs))

    return run


def _two(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of, general = call_of(facts.op), cls._generated.rewrap, _reader(cls), _any(cls, facts)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second = args[0], args[1]
        if type(first) is not cls:
            return general(args, kwargs)
        if type(second) is cls:
            return rewrap(cls, first, call(inner_of(first), inner_of(second), *args[2:], **kwargs))
        if isinstance(second, torch.Tensor):
            return general(args, kwargs)
        return rewrap(cls, first, call(inner_of(first), second, *args[2:], **kwargs))

    return run


def _write(cls: Any, facts: OpFacts) -> Runner:
    call, inner_of, general = call_of(facts.op), _reader(cls), _any(cls, facts)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        if type(target) is not cls:
            return general(args, kwargs)
        if len(args) == 1:
            call(inner_of(target), **kwargs)
        elif type(args[1]) is cls:
            call(inner_of(target), inner_of(args[1]), *args[2:], **kwargs)
        elif isinstance(args[1], torch.Tensor):
            return general(args, kwargs)
        else:
            call(inner_of(target), *args[1:], **kwargs)
        return target

    return run


def _few(cls: Any, facts: OpFacts) -> Runner:
    """A few tensors in, one new tensor out, and a kernel that may conjugate on the way: ``mm``, ``addmm``, ``sum``."""
    call, rewrap, inner_of, general = call_of(facts.op), cls._generated.rewrap, _reader(cls), _any(cls, facts)
    positions = tuple(a.index for a in facts.tensors)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner, like, count = list(args), None, len(args)
        for i in positions:
            value = inner[i] if i < count else None
            if type(value) is cls:
                like = value if like is None else like
                inner[i] = value = inner_of(value)
                if value.is_complex():
                    return general(args, kwargs)
            elif isinstance(value, torch.Tensor):
                if value.is_complex() or value.layout is not torch.strided:
                    return general(args, kwargs)
                keep_gradient(value)
        return rewrap(cls, like, call(*inner, **kwargs))

    return run


def _any(cls: Any, facts: OpFacts) -> Runner:
    call, rewrap, inner_of = call_of(facts.op), cls._generated.rewrap, _reader(cls)
    written, results, watch_bits = facts.written, facts.results, not facts.keeps_math_bits

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        peel = Peel(cls, inner_of, watch_bits)
        inner_args = [peel(a) for a in args]
        inner_kwargs = {k: peel(a) for k, a in kwargs.items()} if kwargs else kwargs
        out = with_math_bits(call, *inner_args, **inner_kwargs) if peel.complex else call(*inner_args, **inner_kwargs)
        if written:
            _settle_writes(cls, facts, args, kwargs)
            if peel.complex:
                for wrapper in written_wrappers(written, cls, args, kwargs):
                    match_bits(wrapper, inner_of(wrapper))
            if type(value_of(written[0], args, kwargs)) is not cls:  # plain.add_(w): the result is plain
                keep_gradient(peel.like)
        if not results:
            return out
        return settle(results, out, args, kwargs, lambda inner: _wrap(cls, rewrap, peel.like, inner))

    return run


class Peel:
    """Takes one level of ``cls`` off the values of a call, lists included, and remembers what it met."""

    __slots__ = ("cls", "complex", "inner_of", "like", "watch")

    def __init__(self, cls: type, inner_of: Callable[[Any], Any], watch: bool) -> None:
        self.cls, self.inner_of, self.watch = cls, inner_of, watch
        self.like: Any = None
        self.complex = False

    def __call__(self, value: Any) -> Any:
        if type(value) is self.cls:
            if self.like is None:
                self.like = value
            inner = self.inner_of(value)
            if self.watch and (inner.is_complex() or inner.is_neg()):
                self.complex = True
            return inner
        if isinstance(value, torch.Tensor):
            if self.watch and value.is_complex():
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
        return [_listed(o, base, wrap) for o in out]
    return _viewed(wrap(out), base) if isinstance(out, torch.Tensor) else out


def _listed(value: Any, base: Any, wrap: Callable[[Any], Any]) -> Any:
    """An item of a list of tensors; collectives return lists of lists."""
    return [_listed(v, base, wrap) for v in value] if isinstance(value, (list, tuple)) else _viewed(wrap(value), base)


def _viewed(outer: Any, base: Any) -> Any:
    if base is not None and type(outer) is type(base):
        share_storage(outer, base)
    return outer


def _wrap(cls: Any, rewrap: Callable[..., Any], like: Any, inner: torch.Tensor) -> Any:
    if inner.layout is not torch.strided or inner.is_nested:
        raise LayoutError(cls, cls.declaration.single.name, torch.jagged if inner.is_nested else inner.layout)
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
