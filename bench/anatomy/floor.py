"""The hand-written wrapper's plan: handlers that stop after one step more each, written as its own is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..peers import hold, share_storage
from .parts import ALIASING, INNER, LOOK_UP, UNWRAP, WRAP, Part, Plan
from .planting import INNER_RESULT, NOTHING, OUTER, Site, frame

aten = torch.ops.aten


@dataclass(frozen=True)
class Branch:
    """One case of the if-chain: for which operators, and its lines. `makes`: whether it wraps the inner result."""

    ops: tuple[Any, ...]
    unwrap: tuple[str, ...]
    inner: str
    makes: bool = True
    base: str = ""


_VIEW = ("(base,) = args",)
_TWO = (
    "left, right = args",
    "left = left.elem if isinstance(left, cls) else left",
    "right = right.elem if isinstance(right, cls) else right",
)
_WRITE = ("target, other = args", "other = other.elem if isinstance(other, cls) else other")
_OPERANDS = ("operands = [arg.elem if isinstance(arg, cls) else arg for arg in args]",)
_PARTS = ("parts = [part.elem if isinstance(part, cls) else part for part in args[0]]",)
_LISTS = ("lists = [[item.elem if isinstance(item, cls) else item for item in items] for items in args]",)

CHAIN = (
    Branch((aten.add.Tensor,), _TWO, "func(left, right, **kwargs) if kwargs else func(left, right)"),
    Branch((aten.detach.default, aten.t.default), _VIEW, "func(base.elem)", base="base"),
    Branch((aten.view.default,), ("base, size = args",), "func(base.elem, size)", base="base"),
    Branch(
        (aten.add_.Tensor,),
        _WRITE,
        "func(target.elem, other, **kwargs) if kwargs else func(target.elem, other)",
        makes=False,
    ),
    Branch(
        (aten.mm.default, aten.linear.default, aten.addmm.default),
        _OPERANDS,
        "func(*operands, **kwargs) if kwargs else func(*operands)",
    ),
    Branch((aten.cat.default,), _PARTS, "func(parts, *args[1:])"),
    Branch((aten._foreach_add_.List,), _LISTS, "func(*lists, **kwargs) if kwargs else func(*lists)", makes=False),
)
"""The order of the hand-written wrapper's own chain, so that the look-up takes as long."""


def plan_of(site: Site) -> Plan:
    """The steps of the hand-written wrapper for one op, each measured over the step before."""
    plan = frame(site)
    before = NOTHING
    for name, lines in _steps(site.trial.case.overload):
        plan.add(site.variant_with(name, _handler(lines)))
        plan.parts.append(step(name, before, makes=not site.trial.case.in_place))
        before = name
    return plan


def step(name: str, before: str, *more: str, makes: bool, plus: tuple[str, ...] = ()) -> Part:
    """A step over the step before. Each frees what it made before it ends: that is no part of it."""
    outer_free, outer_none = OUTER
    inner_free, inner_none = INNER_RESULT
    if makes and name == INNER:
        return Part(name, (name, *plus, *inner_none), (before, *more, *inner_free))
    if makes and name == WRAP:
        return Part(name, (name, *plus, *inner_free, *outer_none), (before, *more, *outer_free, *inner_none))
    return Part(name, (name, *plus), (before, *more))


def _steps(op: Any) -> Iterator[tuple[str, list[str]]]:
    """The handler up to each step, which then hands back nothing."""
    number = next(number for number, branch in enumerate(CHAIN) if op in branch.ops)
    branch = CHAIN[number]
    lines = [f"if {_test(other)}: pass" for other in range(number)]
    lines.append(f"if {_test(number)}: pass")
    yield LOOK_UP, lines
    lines = [*lines[:-1], f"if {_test(number)}:", *_indented(branch.unwrap)]
    yield UNWRAP, lines
    lines = [*lines, *_indented([f"inner = {branch.inner}"])]
    yield INNER, lines
    if branch.makes:
        lines = [*lines, *_indented(["outer = hold(inner)"])]
        yield WRAP, lines
    if branch.base:
        yield ALIASING, [*lines, *_indented([f"share_storage(outer, {branch.base})"])]


def _indented(lines: Any) -> list[str]:
    return [f"    {line}" for line in lines]


def _test(number: int) -> str:
    return " or ".join(f"func is op_{number}_{index}" for index in range(len(CHAIN[number].ops)))


def _handler(lines: list[str]) -> Callable[..., Any]:
    """Compiled, as the methods of data classes are: a chain of closures would cost more than what is measured."""
    scope: dict[str, Any] = {"hold": hold, "share_storage": share_storage}
    scope |= {f"op_{n}_{i}": op for n, branch in enumerate(CHAIN) for i, op in enumerate(branch.ops)}
    text = "\n".join(["def handler(cls, func, types, args=(), kwargs=None):", *_indented(lines)])
    exec(compile(text, "<a step of the hand-written wrapper>", "exec"), scope)  # noqa: S102 - our own text
    handler: Callable[..., Any] = scope["handler"]
    return handler
