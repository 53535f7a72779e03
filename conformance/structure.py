"""An instance taken apart and put together again: what it holds, by its flatten protocol where it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..subclasses.core.private import TRACERS
from .inside import inner_tensors
from .outcome import MismatchError, NotApplicable
from .subject import Subject


def protocol_of(instance: Any) -> tuple[list[str], Any]:
    """What ``__tensor_flatten__`` gives: the names of the inner tensors, and the context.

    Raises:
        NotApplicable: the class has none. A check of its own says so.
    """
    if not has_protocol(type(instance)):
        raise NotApplicable(f"{type(instance).__name__} has no flatten protocol")
    names, context = instance.__tensor_flatten__()
    return list(names), context


def has_protocol(cls: type) -> bool:
    """Whether there are both halves of the flatten protocol."""
    return all(callable(getattr(cls, name, None)) for name in ("__tensor_flatten__", "__tensor_unflatten__"))


def rebuilt(
    instance: Any,
    change: Callable[[torch.Tensor], torch.Tensor] = lambda inner: inner,
    *,
    cls: Any = None,
    size: Any = None,
    stride: Any = None,
) -> Any:
    """``instance`` put together anew, of inner tensors that are ``change`` of its own.

    Raises:
        NotApplicable: the class has no flatten protocol.
    """
    names, context = protocol_of(instance)
    inner = {name: change(getattr(instance, name)) for name in names}
    size, stride = size or instance.size(), stride or instance.stride()
    return (cls or type(instance)).__tensor_unflatten__(inner, context, size, stride)


def structure_of(value: Any) -> tuple[Any, ...]:
    """What has to be the same of two instances that differ in values alone: class, context, metadata, at each depth."""
    facts = (tuple(value.shape), value.stride(), value.dtype, str(value.device))
    if type(value) in (torch.Tensor, torch.nn.Parameter, *TRACERS):
        return facts
    context = value.__tensor_flatten__() if has_protocol(type(value)) else None
    return (type(value).__name__, *facts, context, *map(structure_of, inner_tensors(value)))


def check_structure(subject: Subject, call: str, got: Any, expected: Any) -> None:
    """Whether ``got`` is an instance with the structure of ``expected``.

    Raises:
        MismatchError: it is none, or differs in context or metadata. It names ``call``.
    """
    if not subject.is_instance(got):
        raise MismatchError(call, type(expected), type(got) if not isinstance(got, torch.Tensor) else got)
    ours, theirs = structure_of(got), structure_of(expected)
    if ours != theirs:
        raise MismatchError(f"{call}: class, metadata, context, inner tensors", repr(theirs), repr(ours))


def same_bits(one: Any, other: Any) -> bool:
    """Whether the plain tensors inside agree, bit for bit; of meta tensors, in metadata."""
    if type(one) in (torch.Tensor, torch.nn.Parameter):
        one, other = (each.to_dense() if each.is_mkldnn else each for each in (one, other))
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and (one.is_meta or torch.equal(one, other))
    mine, theirs = inner_tensors(one), inner_tensors(other)
    return len(mine) == len(theirs) and all(map(same_bits, mine, theirs))
