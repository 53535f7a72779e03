"""Tensors: how a wrapper is made, its outer storage, its bits, what C++ knows of it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

# The only constructor of wrapper tensors. Called straight (never as ``cls(...)``): ``type.__call__`` adds 4 us.
make_wrapper: Callable[..., Any] = torch.Tensor._make_wrapper_subclass

# Gives a view the outer storage of its base, so that torch's alias analysis sees the two as one (0.25 us).
share_storage: Callable[[torch.Tensor, torch.Tensor], None] = torch._functionalize_unsafe_set

# The storage under a typed one, whose public ``untyped()`` warns that typed storages will go.
untyped: Callable[[torch.TypedStorage], torch.UntypedStorage] = attrgetter("_untyped_storage")

# Whether autograd holds a tensor for a view of another, which it then keeps alive.
is_view: Callable[[torch.Tensor], bool] = torch.Tensor._is_view

# Whether two tensors share storage, wrappers included: their outer storages.
is_alias: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]

set_conj: Callable[[torch.Tensor, bool], None] = torch._C._set_conj
set_neg: Callable[[torch.Tensor, bool], None] = torch._C._set_neg
is_functorch_level: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


def reference_count(tensor: torch.Tensor) -> int:
    """How many C++ references to the tensor there are. 1: its Python object's alone. A live AccumulateGrad node, a
    view or a saved tensor has one each, and none of them would follow a swap."""
    return int(tensor._use_count())  # type: ignore[attr-defined]


# Device, dtype, non_blocking and memory format of the arguments of ``Tensor.to``; without ``copy``, which it refuses.
arguments_of_to: Callable[..., tuple[Any, Any, bool, Any]] = torch._C._nn._parse_to


def load_location(device: torch.device) -> Any:
    """Where ``torch.load(map_location=...)``, in which this thread is, wants what was on ``device``; that itself
    elsewhere."""
    mapped: Any = torch.serialization._serialization_tls.map_location
    if callable(mapped):
        found = mapped(torch.UntypedStorage(0), str(device))
        return device if found is None else found.device
    return mapped.get(str(device), device) if isinstance(mapped, dict) else mapped or device


def storage_id(tensor: torch.Tensor) -> int:
    """A number that tensors of one storage have in common, fake ones too: they have no address."""
    return int(tensor.untyped_storage()._cdata)


def strided_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors of a sparse one, also where it is not coalesced; of a strided one itself; none of a layout of
    kernels."""
    if tensor.layout is torch.strided:
        return [tensor]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []
