"""The structural rules of every wrapper: ops that do the same to each inner tensor, whatever the values mean.

They hold for classes with several inner tensors, and for those that decode; a one-tensor UNWRAP class runs the op on
its inner tensor anyway.
"""

from __future__ import annotations

from typing import Any

import torch

from .codec import decoded, encoded
from .errors import GeometryError
from .fields import context_of, inner_tensors, is_wrapper, map_inner, same_structure
from .gradients import shares_nothing
from .plain import decoding
from .policy import Gradients
from .private import OpOverload, is_taking_gradient
from .rules import RuleBook
from .schema import facts_of

aten = torch.ops.aten


def _same_op(op: OpOverload, self: Any) -> Any:
    return map_inner(self, op)


def _detach(op: OpOverload, self: Any) -> Any:
    """By which autograd puts a gradient that nobody else holds into a leaf's ``grad``: a copy of it, where somebody
    else holds what is in it."""
    taken = type(self).gradients is Gradients.SAME and is_taking_gradient()
    return map_inner(self, aten.clone.default if taken and not shares_nothing(self) else op)


def _clone(op: OpOverload, self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    if memory_format in (None, torch.preserve_format):
        return map_inner(self, op)
    if memory_format is torch.contiguous_format and self.is_contiguous():
        return map_inner(self, lambda t: op(t, memory_format=memory_format))
    return op(decoded(self), memory_format=memory_format)


def _as_strided(op: OpOverload, self: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    same = tuple(size) == tuple(self.size()) and tuple(stride) == tuple(self.stride())
    if same and storage_offset in (None, self.storage_offset()):
        return map_inner(self, aten.alias.default)
    values = decoded(self)
    if values.stride() != self.stride():
        raise GeometryError(type(self), op, self.stride(), values.stride())
    offset = self.storage_offset() if storage_offset is None else storage_offset
    offset += values.storage_offset() - self.storage_offset()  # decoded values begin a storage of their own
    if offset < 0:
        raise GeometryError(type(self), op, self.stride(), values.stride())
    return decoding(type(self), facts_of(op))((self, size, stride, offset), {})


def _to_copy(
    op: OpOverload,
    self: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Any:
    if (
        dtype in (None, self.dtype)
        and layout in (None, torch.strided)
        and memory_format in (None, torch.preserve_format)
    ):
        return map_inner(self, lambda t: op(t, device=device, pin_memory=pin_memory, non_blocking=non_blocking))
    values = decoded(self)
    copy = op(
        values,
        dtype=dtype,
        layout=layout,
        device=device,
        pin_memory=pin_memory,
        non_blocking=non_blocking,
        memory_format=memory_format,
    )
    if not type(self).can_encode() or copy.layout is not torch.strided:
        return copy
    kept = encoded(type(self), copy, context_of(self))
    return kept if kept.dtype == copy.dtype else copy  # a class of one dtype can't follow


def _new_empty(op: OpOverload, self: Any, size: Any, **how: Any) -> Any:
    """Of the class where a device is named and nothing else differs: asynchronous checkpoints make one and then set its
    inner tensors as attributes, on whatever they got."""
    if tuple(size) != tuple(self.size()) or not _only_names_a_device(self, how):
        return decoding(type(self), facts_of(op))((self, size), how)
    return map_inner(self, lambda t: op(t, t.size(), **_where(how)))


def _new_empty_strided(op: OpOverload, self: Any, size: Any, stride: Any, **how: Any) -> Any:
    """Of the class where a leaf's gradient is: autograd copies one that it shares with others, as reentrant
    checkpointing does, into what this gives."""
    same = tuple(size) == tuple(self.size()) and tuple(stride) == tuple(self.stride())
    if not same or type(self).gradients is not Gradients.SAME or not _only_names_a_device(self, how):
        return decoding(type(self), facts_of(op))((self, size, stride), how)
    return map_inner(self, lambda t: op(t, t.size(), t.stride(), **_where(how)))


def _empty_like(op: OpOverload, self: Any, **how: Any) -> Any:
    """Of the class where a device is named and nothing else differs: ``Module.to_empty`` makes parameters this way."""
    if not _only_names_a_device(self, how):
        return decoding(type(self), facts_of(op))((self,), how)
    return map_inner(self, lambda t: op(t, **_where(how)))


def _only_names_a_device(self: Any, how: dict[str, Any]) -> bool:
    """Without a device it is a scratch buffer of some composite operator, which must not round what it is given."""
    return (
        how.get("device") is not None
        and how.get("dtype") in (None, self.dtype)
        and how.get("layout") in (None, torch.strided)
        and how.get("memory_format") in (None, torch.preserve_format)
    )


def _where(how: dict[str, Any]) -> dict[str, Any]:
    return {name: how[name] for name in ("device", "pin_memory") if how.get(name) is not None}


def _copy_(op: OpOverload, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_wrapper(self):
        return op(self, decoded(src), non_blocking)
    if same_structure(self, src):
        for target, source in zip(inner_tensors(self), inner_tensors(src), strict=True):
            target.copy_(source, non_blocking)
        return self
    self.store(decoded(src) if type(src) is type(self) else src)
    return self


def _pin_memory(op: OpOverload, self: Any, device: torch.device | None = None) -> Any:
    return map_inner(self, lambda t: t.pin_memory())


def _is_pinned(op: OpOverload, self: Any, device: torch.device | None = None) -> bool:
    return all(t.is_pinned() for t in inner_tensors(self))


def _record_stream(op: OpOverload, self: Any, s: Any) -> None:
    for tensor in inner_tensors(self):
        tensor.record_stream(s)


def structural_rules(owner: str) -> RuleBook:
    """The rule book of the base class."""
    book = RuleBook(owner)
    for function, *keys in (
        (_same_op, aten.alias.default, aten.lift_fresh.default),
        (_detach, aten.detach.default),
        (_clone, aten.clone.default),
        (_as_strided, aten.as_strided.default),
        (_to_copy, aten._to_copy.default),
        (_new_empty, aten.new_empty.default),
        (_new_empty_strided, aten.new_empty_strided.default),
        (_empty_like, aten.empty_like.default),
        (_copy_, aten.copy_.default),
        (_pin_memory, aten._pin_memory.default),
        (_is_pinned, aten.is_pinned.default),
        (_record_stream, aten.record_stream.default),
    ):
        book.add(tuple(keys), function, override=False)
    return book
