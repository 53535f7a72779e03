"""Broken in gradients alone: their forward is right."""

from __future__ import annotations

# ruff: noqa: A002, ARG003 - signatures are those of protocols
from typing import Any

import torch
from by_hand import ByHand
from subjects import Clear

F = torch.nn.functional
aten = torch.ops.aten


def _in_backward() -> bool:
    return not torch.is_grad_enabled()


class WrongProducts(Clear):
    pass


@WrongProducts.implements(aten.mm.default)
def mm(op: Any, self: Any, mat2: Any) -> Any:
    left, right = (each.elem if isinstance(each, Clear) else each for each in (self, mat2))
    return WrongProducts(op(left, right) * (2 if _in_backward() else 1))


class WrongFactors(Clear):
    pass


@WrongFactors.implements(aten.mul.Tensor)
def mul(op: Any, self: Any, other: Any) -> Any:
    left, right = (each.elem if isinstance(each, Clear) else each for each in (self, other))
    return WrongFactors(op(left, right) * (2 if _in_backward() else 1))


class LostSlices(Clear):
    pass


@LostSlices.implements(aten.slice_backward.default)
def slice_backward(op: Any, grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    return LostSlices(torch.zeros(input_sizes))


class FrozenBesideInputs(Clear):
    pass


@FrozenBesideInputs.implements_function(F.linear)
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    return func(input, weight.detach() if input.requires_grad else weight, bias)


class ReadsByPosition(ByHand):
    """Takes the bias from the third place only."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            kwargs = {}
        return super().__torch_function__(func, types, args, kwargs or {})


class KeepsGradients(ByHand):
    """``zero_`` changes nothing."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func in (aten.zero_.default, aten._foreach_zero_.default):
            return args[0]
        return func(*args, **kwargs)


BROKEN = {
    "gradients_of_products_are_right": (WrongProducts, WrongProducts.from_plain),
    "gradients_of_pointwise_ops_are_right": (WrongFactors, WrongFactors.from_plain),
    "gradients_of_views_are_right": (LostSlices, LostSlices.from_plain),
    "weights_get_gradients_beside_inputs": (FrozenBesideInputs, FrozenBesideInputs.from_plain),
    "linear_takes_keywords": (ReadsByPosition, ReadsByPosition),
    "plain_leaves_get_plain_gradients": (ByHand, ByHand),  # it has no say in the gradients of others
    "gradients_accumulate": (KeepsGradients, KeepsGradients),
    "second_derivatives_are_right": (WrongFactors, WrongFactors.from_plain),
    "gradients_agree_with_finite_differences": (WrongProducts, WrongProducts.from_plain),
    "gradcheck_passes_through_the_wrapper": (WrongProducts, WrongProducts.from_plain),
    "complex_values_are_right": (ByHand, ByHand),  # knows nothing of conj and neg bits
    "wrapped_views_keep_their_bits": (ByHand, ByHand),
    "complex_gradients_are_right": (ByHand, ByHand),
}
