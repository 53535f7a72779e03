"""What decides the metadata of a call's results: the metadata of its tensors, its other arguments, global state.

``1``, ``1.0`` and ``True`` are equal in Python and promote differently, so a value counts with its type. Element-wise
operators give the same metadata whatever a float among their arguments is: there its type alone counts, and the
bias correction of an optimizer, another number in each step, is no new signature.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import torch

from ..core.private import TRACERS, deterministic, mkldnn_enabled
from ..core.schema import Kind, OpFacts
from .metadata import Metadata, metadata_of, recognize


class UntellableError(Exception):
    """An argument is symbolic, or its values are traced: the call is PyTorch's. Never leaves the package."""


class UnknownError(Exception):
    """Nothing is known of an argument: the call is to be computed each time. Never leaves the package."""


class StrangerError(Exception):
    """A tensor of another class is among the arguments. Never leaves the package."""


_AS_THEY_ARE = (type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def signature(
    values: Iterable[Any], fake: Any, any_float: bool, parts: list[Hashable], alone: bool = False
) -> tuple[Hashable, ...]:
    """Of arguments, after ``parts``. ``fake``: the class whose instances have a ``metadata``; ``any_float``: whether
    floats count by their type alone; ``alone``: whether other tensors are a StrangerError."""
    for value in values:
        kind = type(value)
        if kind is fake:
            metadata = value._l_metadata
            if metadata is None:
                metadata = _recognized(value)
            parts.append(metadata)
        elif kind is int:
            parts.append(value)
        elif kind is float:
            parts.append(float if any_float else (float, value))
        elif kind is bool or kind is complex:
            parts.append((kind, value))
        elif kind is list or kind is tuple or kind is torch.Size:
            parts.append(signature(value, fake, any_float, [], alone))
        else:
            parts.append(_other(value, kind, fake, alone))
    return tuple(parts)


def _recognized(value: Any) -> Metadata:
    if not recognize(value):
        raise UntellableError
    metadata: Metadata = value._l_metadata
    return metadata


def _other(value: Any, kind: type, fake: Any, alone: bool) -> Hashable:
    if isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, fake):
        metadata: Metadata | None = value._l_metadata
        return _recognized(value) if metadata is None else metadata
    if alone and isinstance(value, torch.Tensor):
        raise StrangerError
    if isinstance(value, (*TRACERS, torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise UntellableError
    if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
        return (torch.Tensor, metadata_of(value, value.device))
    if kind is torch.Generator:
        return torch.Generator, value.device
    raise UnknownError


class Way(NamedTuple):
    """How the calls of an operator are told apart: its facts, what reads the global state that decides its results, and
    whether floats count by their type alone. ``straight``: a replay is all that there is to do."""

    facts: OpFacts
    state: Callable[[], Hashable]
    any_float: bool
    straight: bool


def way_of(facts: OpFacts) -> Way:
    op = facts.op
    any_float = torch.Tag.pointwise in op.tags or op.name().startswith(("aten::_foreach_", "aten::_fused_"))
    return Way(facts, _state_that_decides(facts), any_float, not any(a.listed for a in facts.written))


# Their kernels are chosen by what backends the program has left on: the layout of the result is the kernel's.
_CHOSEN = ("conv", "batch_norm", "rnn", "lstm", "gru", "linear", "matmul", "attention")


def _state_that_decides(facts: OpFacts) -> Callable[[], Hashable]:
    """Reads the global state that decides the results of an operator."""
    name = facts.op.name()
    if "mkldnn_rnn" in name:
        return _state_of_onednn
    if facts.composite or any(word in name for word in _CHOSEN):
        return _all_state
    if Kind.VIEW in facts.kinds:
        return torch.is_inference_mode_enabled  # under which a view is made as if it were off
    if torch.Tag.pointwise in facts.op.tags:
        return torch.get_default_dtype
    return _usual_state


def _usual_state() -> Hashable:
    return torch.get_default_dtype(), deterministic()


def _all_state() -> Hashable:
    """A composite operator arrives whole under inference mode only."""
    backends = torch.backends.cudnn.enabled, mkldnn_enabled(), torch.backends.cudnn.benchmark
    return torch.get_default_dtype(), deterministic(), torch.is_inference_mode_enabled(), *backends


def _state_of_onednn() -> Hashable:
    """Its recurrent kernel keeps something for the backward where gradients are on, whatever it is told."""
    return _all_state(), torch.is_grad_enabled()
