"""Tensors with a unit: metres plus seconds is an error, metres by metres are square metres, gradients have units, too.
Run it with `python examples/units.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

import lamina

aten = torch.ops.aten
Unit = tuple[tuple[str, int], ...]  # names and exponents: (("m", 1), ("s", -1)) is m/s, and () a pure number


class UnitError(ValueError):
    """An operator can't be computed with these units."""


class Measured(lamina.WrapperTensor):
    """Values in a unit. An operator without a rule gives the unit of its first operand."""

    amount: Tensor
    unit: Unit = ()
    fallback = lamina.Fallback.UNWRAP


def unit_of(operand: Any) -> Unit:
    """A number, or a plain tensor, is in no unit."""
    return operand.unit if isinstance(operand, Measured) else ()


def in_unit(unit: Unit, result: Any) -> Any:
    """The same amount, in that unit."""
    return type(result)(result.amount, unit)


def product(one: Unit, other: Unit, sign: int = 1) -> Unit:
    """Exponents add; for a quotient, with ``sign`` -1, they subtract."""
    exponents = dict(one)
    for name, exponent in other:
        exponents[name] = exponents.get(name, 0) + sign * exponent
    return tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent))


@Measured.implements(aten.mul.Tensor, aten.div.Tensor)
def multiply(op: Any, self: Any, other: Any) -> Any:
    """The unit of a product is the product of the units."""
    unit = product(unit_of(self), unit_of(other), -1 if op is aten.div.Tensor else 1)
    return in_unit(unit, Measured.super_rule(op)(self, other))


@Measured.implements(aten.mm.default)
def matmul(op: Any, self: Any, mat2: Any) -> Any:
    """So it is for matrices."""
    return in_unit(product(unit_of(self), unit_of(mat2)), Measured.super_rule(op)(self, mat2))


@Measured.implements(aten.add.Tensor, aten.sub.Tensor)
def add(op: Any, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Only like can be added to like."""
    if unit_of(self) != unit_of(other):
        raise UnitError(f"{op}: the units {unit_of(self)} and {unit_of(other)} differ")
    return Measured.super_rule(op)(self, other, alpha=alpha)


@Measured.implements(aten.mul_.Tensor, aten.div_.Tensor)
def multiply_in_place(op: Any, self: Any, other: Any) -> Any:
    """What is there has its unit for good."""
    if unit_of(other):
        raise UnitError(f"{op}: the unit {unit_of(self)} would change; write x = x * y")
    return Measured.super_rule(op)(self, other)


@Measured.implements(aten.ones_like.default)
def ones_like(op: Any, self: Any, **options: Any) -> Any:
    """A backward starts with it, from the loss: as a pure number, so that each gradient is in the unit it must have."""
    return in_unit((), Measured.super_rule(op)(self, **options))


def main() -> None:
    """Compute with units, then ask the conformance kit whether the type holds."""
    way = Measured(torch.tensor([3.0, 4.0]), (("m", 1),)).requires_grad_()
    time = Measured(torch.tensor([2.0, 2.0]), (("s", 1),))
    speed = way / time
    print(f"{speed.amount.tolist()} in {speed.unit}")
    (speed * speed).sum().backward()
    print(f"gradient: {way.grad.amount.tolist()} in {way.grad.unit}")
    with suppress(UnitError):
        print(way + time)
    report = lamina.conformance.check_subclass(Measured, only=["views", "writes"])
    print(report.headline())


if __name__ == "__main__":
    main()
