"""Broken in what the flatten protocol says of them."""

from __future__ import annotations

from typing import Any

import torch
from by_hand import ByHand


class NoProtocol(ByHand):
    """A class for eager code alone."""

    __tensor_flatten__ = None


class ListsNone(ByHand):
    """Lists an optional inner tensor that is not there."""

    bias = None

    def __tensor_flatten__(self) -> Any:
        return ["elem", "bias"], self.tag


class HidesATensor(ByHand):
    """Has a scale that flatten does not know."""

    def __new__(cls, *args: Any) -> Any:
        self = super().__new__(cls, *args)
        self.scale = torch.ones(1)
        return self


class ForgetsAnAttribute(ByHand):
    """What ``make`` sets beside the fields is not in the context."""

    mode = "slow"

    @classmethod
    def fast(cls, elem: torch.Tensor) -> Any:
        self = cls(elem)
        self.mode = "fast"
        return self


class ListContext(ByHand):
    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, ["a", "list"])


class Setting:
    """Compares by identity."""


class IdentityContext(ByHand):
    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, (Setting(),))


class FunctionContext(ByHand):
    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, (lambda: None,))


class SetContext(ByHand):
    """The order of a set of strings is another one in each process."""

    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, frozenset(f"option {i}" for i in range(20)))


class LosesTheTag(ByHand):
    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        return cls(elem, "important")

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], "", size, stride)


class UsesWhatIsNotCarried(ByHand):
    """Its ops read an attribute that only the constructor's caller sets."""

    shift = 1

    @classmethod
    def make(cls, elem: torch.Tensor) -> Any:
        self = cls(elem)
        self.shift = 0
        return self

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        out = func(*args, **kwargs)
        return out + 1 if func is torch.ops.aten.add.Tensor and wrapped[0].shift else out


class OwnGeometry(ByHand):
    """Takes size and stride from its inner tensor, whatever it is told."""

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], tag)


class FixedSizes(ByHand):
    """Makes numbers of symbolic sizes."""

    def __new__(cls, elem: torch.Tensor, tag: Any = "", size: Any = None, stride: Any = None) -> Any:
        return super().__new__(cls, elem, tag, [int(each) for each in size or elem.shape], stride)


class SetLate(ByHand):
    """Sets its fields in ``__init__``."""

    def __new__(cls, elem: torch.Tensor, *_: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, elem.size(), strides=elem.stride(), dtype=elem.dtype)

    def __init__(self, elem: torch.Tensor, tag: Any = "", *_: Any) -> None:
        self.elem, self.tag = elem, tag


BROKEN = {
    "flatten_protocol_is_there": (NoProtocol, NoProtocol),
    "flattened_names_are_tensors": (ListsNone, ListsNone),
    "every_inner_tensor_is_flattened": (HidesATensor, HidesATensor),
    "round_trip_keeps_every_attribute": (ForgetsAnAttribute, ForgetsAnAttribute.fast),
    "context_is_hashable": (ListContext, ListContext.make),
    "context_compares_by_value": (IdentityContext, IdentityContext.make),
    "context_pickles": (FunctionContext, FunctionContext.make),
    "context_pickle_is_the_same_in_another_process": (SetContext, SetContext.make),
    "round_trip_keeps_values_and_metadata": (LosesTheTag, LosesTheTag.make),
    "rebuilt_instances_work": (UsesWhatIsNotCarried, UsesWhatIsNotCarried.make),
    "unflatten_uses_the_given_geometry": (OwnGeometry, OwnGeometry),
    "symbolic_sizes_survive": (FixedSizes, FixedSizes),
    "fields_are_set_before_the_object_escapes": (SetLate, SetLate),
}
