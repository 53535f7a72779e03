"""What decides the metadata of a call's results: the metadata of its tensors, its other arguments, global state.

``1``, ``1.0`` and ``True`` are equal in Python and promote differently, so a value counts with its type. Element-wise
operators give the same metadata whatever a float among their arguments is: there its type alone counts, and the
bias correction of an optimizer, another number in each step, is no new signature.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch

from .metadata import Metadata, metadata_of


class UntellableError(Exception):
    """An argument is symbolic, or its values are traced: the call is not to be replayed. Never leaves the package."""


_AS_THEY_ARE = (type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def signature(values: Iterable[Any], fake: type, any_float: bool) -> tuple[Hashable, ...]:
    """Of positional arguments. ``fake``: the class whose instances have a ``metadata``; ``any_float``: whether floats
    count by their type alone."""
    parts: list[Hashable] = []
    for value in values:
        kind = type(value)
        if kind is fake:
            metadata = value.metadata
            if metadata is None:
                raise UntellableError
            parts.append(metadata)
        elif kind is int:
            parts.append(value)
        elif kind is float:
            parts.append(float if any_float else (float, value))
        elif kind is bool or kind is complex:
            parts.append((kind, value))
        elif kind is list or kind is tuple or kind is torch.Size:
            parts.append(signature(value, fake, any_float))
        else:
            parts.append(_other(value, kind, fake))
    return tuple(parts)


def _other(value: Any, kind: type, fake: type) -> Hashable:
    if isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, fake):
        metadata: Metadata | None = value.metadata
        if metadata is None:
            raise UntellableError
        return metadata
    if kind in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        return (torch.Tensor, metadata_of(value, value.device))
    if kind is torch.Generator:
        return torch.Generator, value.device
    raise UntellableError
