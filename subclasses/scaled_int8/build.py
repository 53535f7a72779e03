"""Puts the parts of a view, or of a rearranged copy, together again: payload, scale and zero point, and their grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.fields import VIEW_SOURCE
from ..core.private import OpOverload, call_of, share_storage
from .granularity import follow
from .tensor import ScaledInt8Tensor

Part = Callable[[torch.Tensor], torch.Tensor]
_OWN_FIELDS = len(ScaledInt8Tensor.declaration.fields)


def rebuilt(
    like: Any,
    qdata: torch.Tensor,
    of_scale: Part,
    blocks: tuple[int, ...] | None = None,
    *,
    logical_dtype: torch.dtype | None = None,
    partial: bool = False,
) -> Any:
    """An instance with the recipe of ``like``, with another payload; its scale and zero point are ``of_scale`` of those
    of ``like``, in ``blocks`` (None: unchanged)."""
    cls = type(like)
    return cls._generated.make(
        cls,
        qdata,
        of_scale(like.scale),
        None if like.zero_point is None else of_scale(like.zero_point),
        like.granularity if blocks is None else follow(like.granularity, blocks),
        logical_dtype or like.logical_dtype,
        like.rounding,
        like.activation,
        partial,
        *(() if cls is ScaledInt8Tensor else _further_fields(like)),
    )


def _further_fields(like: Any) -> tuple[Any, ...]:
    """What a subclass declares beyond the fields of ``ScaledInt8Tensor``."""
    return tuple(getattr(like, field.name) for field in type(like).declaration.fields[_OWN_FIELDS:])


def viewed(
    source: Any,
    view: Part,
    of_scale: Part,
    blocks: tuple[int, ...] | None = None,
    *,
    cuts: bool = False,
) -> Any:
    """``view`` of ``source``, payload and values alike. ``cuts``: the scale stays shared with values outside it."""
    partial = source.partial or cuts
    result = rebuilt(source, view(source.qdata), of_scale, blocks, partial=partial)
    if partial and (not source.partial or VIEW_SOURCE in vars(source)):
        vars(result)[VIEW_SOURCE] = (alias(source), view)
    return result


def alias(tensor: Any) -> Any:
    """A view of all of it. What is done to ``tensor`` itself later, ``t_()`` say, doesn't show in it."""
    call = call_of(torch.ops.aten.alias.default)
    result = rebuilt(tensor, call(tensor.qdata), call, partial=tensor.partial)
    if VIEW_SOURCE in vars(tensor):  # as it is: a chain of views would grow with each detach
        vars(result)[VIEW_SOURCE] = vars(tensor)[VIEW_SOURCE]
    share_storage(result, tensor)
    return result


def applied(op: OpOverload, *args: Any) -> Part:
    """``op`` with its further arguments; each call saves the Python frame of an overload."""
    call = call_of(op)
    return lambda tensor: call(tensor, *args)


def removed(blocks: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return blocks[:dim] + blocks[dim + 1 :]


def inserted(blocks: tuple[int, ...], dim: int, *new: int) -> tuple[int, ...]:
    return (*blocks[:dim], *new, *blocks[dim:])


def wrapped_dim(dim: int, rank: int) -> int:
    """``dim`` counted from the front. The op on the payload refuses one that is out of range."""
    return dim + rank if dim < 0 else dim


def same_grid(a: Any, b: Any) -> bool:
    """Same class and blocks, and both symmetric or neither: payloads of one shape can be exchanged."""
    return (
        type(a) is type(b)
        and a.dim() == b.dim()
        and a.blocks == b.blocks
        and (a.zero_point is None) is (b.zero_point is None)
    )
