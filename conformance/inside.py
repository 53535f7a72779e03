"""What is inside an instance of any class: the tensors that it holds, and what it says of itself beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..subclasses.core.private import TRACERS


def inner_tensors(instance: Any) -> list[torch.Tensor]:
    """Those that ``__tensor_flatten__`` names; without it all attributes, of slots too, that are tensors."""
    flatten = getattr(instance, "__tensor_flatten__", None)
    if flatten is not None:
        held = [getattr(instance, name, None) for name in flatten()[0]]
        return [each for each in held if isinstance(each, torch.Tensor)]
    slots = [name for each in type(instance).__mro__ for name in getattr(each, "__slots__", ())]
    found = [getattr(instance, name, None) for name in [*slots, *vars(instance)]]
    return [each for each in found if isinstance(each, torch.Tensor)]


def leaves_of(instance: Any) -> list[torch.Tensor]:
    """The plain tensors inside, fake ones too, depth first; ``instance`` itself if it is plain."""
    if type(instance) in (torch.Tensor, torch.nn.Parameter, *TRACERS):
        return [instance]
    return [leaf for inner in inner_tensors(instance) for leaf in leaves_of(inner)]


def addresses(instance: Any) -> list[int]:
    """Those of the plain tensors inside that have memory."""
    return [leaf.data_ptr() for leaf in leaves_of(instance) if leaf.numel() and not leaf.is_meta]


def context_of(instance: Any) -> Any:
    """What ``__tensor_flatten__`` says beside the names of the inner tensors; None without it."""
    flatten = getattr(instance, "__tensor_flatten__", None)
    return None if flatten is None else flatten()[1]


# What has to agree between two that stand for one another.
FACTS: dict[str, Callable[[Any], Any]] = {
    "shape, stride and offset": lambda each: (tuple(each.shape), each.stride(), each.storage_offset()),
    "dtype and device": lambda each: (each.dtype, each.device),
    "requires_grad": lambda each: each.requires_grad,
    "isinstance(..., nn.Parameter)": lambda each: isinstance(each, torch.nn.Parameter),
    "the context": context_of,
    "the tensors inside": lambda each: [(tuple(leaf.shape), leaf.dtype, leaf.device) for leaf in leaves_of(each)],
}
