"""Broken in what training does around an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled

from broken.aliases import ByHand
from broken.optimizers import LosesAdd, copies, elem_of

aten = torch.ops.aten


class UnclippedLists(Clear):
    """Gradients are multiplied in copies, where they are multiplied as a list."""


@UnclippedLists.implements(aten._foreach_mul_.Tensor)
def foreach_mul_lost(op: Any, self: Any, other: Any) -> None:
    op(copies(self), elem_of(other))


class LosesAverages(Clear):
    """A plain average is updated in a copy."""


@LosesAverages.implements(aten.lerp_.Scalar)
def lerp_lost(op: Any, self: Any, end: Any, weight: Any) -> Any:
    op(self.elem if isinstance(self, Clear) else self.clone(), elem_of(end), weight)
    return self


class IgnoresDtype(Clear):
    """A conversion gives a copy."""


@IgnoresDtype.implements(aten._to_copy.default)
def to_copy(op: Any, self: Any, **how: Any) -> Any:
    return IgnoresDtype(self.elem.clone())


class HalfFast(Doubled):
    """It has a product, and no ``t``: a linear layer never meets the product."""


@HalfFast.implements(aten.mm.default)
def mm(op: Any, self: Any, mat2: Any) -> Any:
    return op(*(each.elem * 2 if isinstance(each, Doubled) else each for each in (self, mat2)))


BROKEN = {
    "gradients_are_zeroed_clipped_and_summed": (UnclippedLists, UnclippedLists),
    "averages_follow_the_weights": (LosesAverages, LosesAverages),
    "vectors_go_into_parameters": (ByHand, ByHand),
    "optimizer_state_may_be_of_the_class": (LosesAdd, LosesAdd),
    "a_mixed_precision_step_trains": (IgnoresDtype, IgnoresDtype),
    "products_with_a_rule_never_fall_back": (HalfFast, HalfFast.from_plain),
}
