"""Broken in what autograd sees of them."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
from typing import Any

import torch
from by_hand import ByHand

aten = torch.ops.aten


class CountsDetaches(ByHand):
    """Its context is another one after each ``detach``."""

    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, 0)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return cls(func(args[0].elem), args[0].tag + 1)
        return super().__torch_dispatch__(func, types, args, kwargs)


class WritesUnseen(ByHand):
    """Its ``mul_`` goes around autograd: no version is counted."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.mul_:
            args[0].elem.mul_(args[1])
            return args[0]
        return super().__torch_function__(func, types, args, kwargs or {})


class FunctionLevel(ByHand):
    """``clone`` keeps the class in ``__torch_function__`` only, which is off in hooks of ``x.sum().backward()``."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.clone:
            return cls(args[0].elem.clone())
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.clone.default:
            return args[0].elem.clone()
        return super().__torch_dispatch__(func, types, args, kwargs)


class InnerLeaf(ByHand):
    """Hands ``requires_grad_`` to its inner tensor."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.requires_grad_:
            args[0].elem.requires_grad_(*args[1:])
            return args[0]
        return super().__torch_function__(func, types, args, kwargs or {})


class DropsRetainGrad(ByHand):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.retain_grad:
            return None
        return super().__torch_function__(func, types, args, kwargs or {})


class CopiesData(ByHand):
    data = property(lambda self: self.detach().clone())


class ThawsCopies(ByHand):
    """A deep copy of it requires grad."""

    def __deepcopy__(self, memo: Any) -> Any:
        return torch.nn.Parameter(type(self)(self.elem.clone(), self.tag))


class AnotherRecompute(ByHand):
    """Computes otherwise where a backward runs the forward again."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        out = func(*args, **kwargs)
        again = torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled()
        return -out if again and func is aten.mm.default else out


BROKEN = {
    "parameters_are_of_the_class": (CountsDetaches, CountsDetaches.make),
    "saved_tensors_keep_class_and_context": (CountsDetaches, CountsDetaches.make),
    "reentrant_checkpointing_keeps_the_class": (CountsDetaches, CountsDetaches.make),
    "packed_tensors_keep_the_wrapper": (CountsDetaches, CountsDetaches.make),
    "changes_of_a_saved_instance_are_noticed": (WritesUnseen, WritesUnseen),
    "writes_to_lists_are_noticed": (ByHand, ByHand),  # torch does not count them for wrappers
    "changes_of_a_wrapped_source_are_noticed": (ByHand, ByHand),  # the instance shares the memory of its source
    "hooks_see_the_class": (FunctionLevel, FunctionLevel),
    "requires_grad_is_that_of_the_instance": (InnerLeaf, InnerLeaf),
    "retained_gradients_arrive": (DropsRetainGrad, DropsRetainGrad),
    "data_reads_an_instance_on_the_same_memory": (CopiesData, CopiesData),
    "data_takes_an_instance": (ByHand, ByHand),  # torch exchanges the outer metadata only
    "data_refuses_another_class": (ByHand, ByHand),
    "requires_grad_survives_reloading": (ThawsCopies, ThawsCopies),
    "checkpointing_keeps_the_class": (AnotherRecompute, AnotherRecompute),
}
