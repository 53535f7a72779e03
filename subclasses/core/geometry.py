"""Keeps the outer tensor's metadata true: its conj and neg bits, its storage, and its geometry after a write."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .carried import device_on_carrier
from .fields import leaf_tensors
from .private import TRACERS, below_python, make_wrapper, set_conj, set_neg


class OuterMetadata(NamedTuple):
    """What the outer tensor says of itself. ``size``, ``stride`` and ``storage_offset`` count elements."""

    size: torch.Size | tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int | torch.SymInt
    dtype: torch.dtype
    device: torch.device


def carry_bits(outer: torch.Tensor, inner: torch.Tensor) -> None:
    """Gives ``outer`` the conj and neg bits of ``inner``: without them the dispatcher never resolves them, and values
    are silently conjugated (``fft.hfftn``)."""
    if inner.is_conj():
        set_conj(outer, True)
        outer._l_bits = True  # type: ignore[attr-defined]
    if inner.is_neg():
        set_neg(outer, True)
        outer._l_bits = True  # type: ignore[attr-defined]


def traced_stride(first: torch.Tensor, size: Any, stride: Any, said_size: Any, said_stride: Any) -> Any:
    """The strides of a wrapper that compiled code puts together. At run time the compiler may mix up what it says of
    them (``MIXES_UP_STRIDES``): where its sizes are those that the inner tensors give, so are the strides."""
    at_run_time = not isinstance(next(leaf_tensors(first)), TRACERS)
    return stride if at_run_time and tuple(said_size) == tuple(size) else said_stride


def take_bits(outer: Any, other: Any) -> None:
    """Gives ``outer`` the conj and neg bits of ``other``, a wrapper too: sets them, or takes them away."""
    set_conj(outer, other.is_conj())
    set_neg(outer, other.is_neg())
    outer._l_bits = other._l_bits


def match_bits(outer: Any, inner: torch.Tensor) -> None:
    """Gives ``outer`` the conj and neg bits of ``inner`` after a write that may have changed them: ``lu_solve`` leaves
    its ``out=`` conjugated."""
    if (outer.is_conj(), outer.is_neg()) != (inner.is_conj(), inner.is_neg()):
        set_conj(outer, inner.is_conj())
        set_neg(outer, inner.is_neg())
        outer._l_bits = inner.is_conj() or inner.is_neg()


def metadata_of(wrapper: Any) -> OuterMetadata:
    """The metadata that the inner tensors of ``wrapper`` give its outer tensor now."""
    cls = type(wrapper)
    fields = [getattr(wrapper, f.name) for f in cls.declaration.fields]
    return OuterMetadata(*cls.outer_metadata(*fields))


def match_geometry(wrapper: Any) -> None:
    """Derives size, stride and offset of the outer tensor from the inner tensors, after those were written to."""
    new = metadata_of(wrapper)
    old = (wrapper.size(), wrapper.stride(), wrapper.storage_offset())
    if old == (torch.Size(new.size), tuple(new.stride), new.storage_offset):
        return
    fresh = make_wrapper(
        type(wrapper),
        new.size,
        new.stride,
        new.storage_offset,
        None,
        new.dtype,
        torch.strided,
        device_on_carrier(wrapper),
    )
    with below_python():
        torch.ops.aten.set_.source_Storage_storage_offset(
            wrapper, fresh.untyped_storage(), new.storage_offset, new.size, new.stride
        )
