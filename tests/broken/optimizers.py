"""Broken in optimizer steps, one way of stepping each."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear

from lamina import LoggingTensor

aten = torch.ops.aten


def elem_of(value: Any) -> Any:
    return value.elem if isinstance(value, Clear) else value


def copies(tensors: Any) -> list[Any]:
    return [elem_of(each).clone() for each in tensors]


class LosesAdd(Clear):
    """``add_`` with a factor adds to a copy, as steps one by one do."""


@LosesAdd.implements(aten.add_.Tensor)
def add_lost(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    op(elem_of(self).clone() if alpha != 1 else elem_of(self), elem_of(other), alpha=alpha)
    return self


class LosesLists(Clear):
    """``_foreach_add_`` adds to copies."""


@LosesLists.implements(aten._foreach_add_.List)
def foreach_add_lost(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> None:
    op(copies(self), copies(other), alpha=alpha)


class LosesFused(Clear):
    """The fused step of SGD is one of copies."""


@LosesFused.implements(aten._fused_sgd_.default)
def fused_lost(op: Any, self: Any, grads: Any, momentum_buffer_list: Any, **options: Any) -> None:
    op(copies(self), copies(grads), copies(momentum_buffer_list), **options)


class RefusesTensorRates(Clear):
    """The fused step takes a number as the rate, no tensor."""


@RefusesTensorRates.implements(aten._fused_sgd_.tensor_lr)
def fused_refused(op: Any, self: Any, grads: Any, momentum_buffer_list: Any, **options: Any) -> None:
    raise NotImplementedError("lr has to be a float")


class BlocksUpdates(LoggingTensor):
    """``add_`` of a view of some longer vector is lost: what LBFGS adds."""


@BlocksUpdates.implements(aten.add_.Tensor)
def add_of_views_lost(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    own = isinstance(self, BlocksUpdates)
    target, operand = (each.elem if isinstance(each, BlocksUpdates) else each for each in (self, other))
    shown = other.untyped_storage().nbytes() > other.numel() * other.element_size() if own else False
    op(target.clone() if shown else target, operand, alpha=alpha)
    return self


class Moves(Clear):
    """``add_`` puts the sum into new memory."""


@Moves.implements(aten.add_.Tensor)
def add_anew(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    if not isinstance(self, Clear):
        return op(self, elem_of(other), alpha=alpha)
    self.elem = torch.add(self.elem, elem_of(other), alpha=alpha)
    return self


BROKEN = {
    "optimizers_step_one_by_one": (LosesAdd, LosesAdd),
    "optimizers_step_over_lists": (LosesLists, LosesLists),
    "optimizers_step_fused": (LosesFused, LosesFused),
    "the_learning_rate_may_be_a_tensor": (RefusesTensorRates, RefusesTensorRates),
    "optimizers_with_a_closure_step": (BlocksUpdates, BlocksUpdates),
    "training_lowers_the_loss": (LosesAdd, LosesAdd),
    "an_optimizer_follows_the_wrap": (LosesAdd, LosesAdd),
    "a_step_keeps_the_addresses": (Moves, Moves),
}
