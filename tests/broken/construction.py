"""Broken in how they are made, and in what they do of others."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
from typing import Any

import torch
from by_hand import ByHand
from subjects import Clear
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

aten = torch.ops.aten


class UnwrittenUnderModes(ByHand):
    """Its values are lost while a dispatch mode is on."""

    def __new__(cls, elem: torch.Tensor, *rest: Any) -> Any:
        return super().__new__(cls, elem * 0 if is_in_torch_dispatch_mode() else elem, *rest)


class RefusesFunctionModes(ByHand):
    def __new__(cls, elem: torch.Tensor, *rest: Any) -> Any:
        if torch._C._len_torch_function_stack():
            raise RuntimeError("not within a function mode")
        return super().__new__(cls, elem, *rest)


class MixesDevices(ByHand):
    """Makes a tensor on the default device beside its operand."""

    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem * torch.ones(elem.shape))


class ReadsValues(ByHand):
    """Looks at the values while it is made."""

    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem / elem.abs().max().clamp(min=1).item())


class NamesItself(ByHand):
    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: Any, size: Any, stride: Any) -> Any:
        return NamesItself(inner["elem"], tag, size, stride)


class CutsGradients(ByHand):
    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem.detach())


class LazyClone(Clear):
    pass


@LazyClone.implements(aten.clone.default)
def clone(op: Any, self: Any, memory_format: Any = None) -> Any:
    return LazyClone(self.elem.view(self.elem.shape))


class ReplacesInner(ByHand):
    """Its in-place ops leave the inner tensor, and hold another one."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func is aten.mul_.Tensor:
            wrapped[0].elem = args[0] * args[1]
            return wrapped[0].elem
        return func(*args, **kwargs)


class HandsOut(ByHand):
    """A no-op on it gives the inner tensor."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.alias.default:
            return args[0].elem
        return super().__torch_dispatch__(func, types, args, kwargs)


class LostByRelu(Clear):
    pass


@LostByRelu.implements(aten.relu.default)
def relu(op: Any, self: Any) -> Any:
    return op(self.elem)


class RaisesForOthers(ByHand):
    """Where it should return NotImplemented."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(each, cls) for each in types):
            raise RuntimeError(f"don't know {types}")
        return super().__torch_dispatch__(func, types, args, kwargs)


class RaisesTypeError(ByHand):
    """Its handler for comparisons does not take broadcast operands."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func is aten.eq.Tensor and args[1].dim() != args[0].dim():
            raise TypeError("eq() takes operands of one shape")
        return func(*args, **kwargs)


BROKEN = {
    "made_within_a_dispatch_mode": (UnwrittenUnderModes, UnwrittenUnderModes),
    "made_within_a_function_mode": (RefusesFunctionModes, RefusesFunctionModes),
    "made_within_a_default_device": (MixesDevices, MixesDevices.make),
    "made_on_the_meta_device": (ReadsValues, ReadsValues.make),
    "made_in_fake_mode": (ReadsValues, ReadsValues.make),
    "a_subclass_works_like_the_class": (NamesItself, NamesItself),
    "construction_cuts_no_gradient_silently": (CutsGradients, CutsGradients.make),
    "copies_share_no_memory": (LazyClone, LazyClone),
    "wrappers_of_one_inner_tensor_agree": (ReplacesInner, ReplacesInner),
    "idle_ops_give_new_instances": (HandsOut, HandsOut),
    "results_keep_the_class": (LostByRelu, LostByRelu),
    "another_class_is_asked": (RaisesForOthers, RaisesForOthers),
    "no_comparison_swallows_an_error": (RaisesTypeError, RaisesTypeError),
}
