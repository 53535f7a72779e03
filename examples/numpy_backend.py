"""A backend in Python: the device "arrays", whose memory is NumPy's.

Run it: python examples/numpy_backend.py

PyTorch keeps one dispatch key for backends that it does not know, PrivateUse1. Here it gets a name, memory and kernels;
`out_of_tree_backend.py` adds what is missing, and shows what the dispatcher makes of it. The storage of these tensors,
for torch, holds no bytes: torch.save raises, and copy.deepcopy crashes the process.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import backend_registration

if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
    raise SystemExit(f"torch {torch.__version__} takes no backends in Python: an experiment of torch's, there in 2.13")
MODULE = SimpleNamespace(  # what torch.accelerator, torch.autocast and torch.manual_seed ask
    is_available=lambda: True,
    device_count=lambda: 1,
    get_amp_supported_dtype=lambda: [torch.float16],
    manual_seed_all=lambda seed: None,  # noqa: ARG005 - random numbers are the CPU's
    _is_in_bad_fork=lambda: False,
)
backend_registration._setup_privateuseone_for_python_backend("arrays", backend_module=MODULE)
ATEN = torch.library.Library("aten", "IMPL")
POINT, ALIAS = (torch.library.get_kernel(f"aten::{name}", "CPU") for name in ("as_strided", "_reshape_alias"))


def on_cpu(x: Tensor) -> Tensor:
    """The same memory, seen from the CPU. It hangs on the storage, which views and detached tensors share."""
    if x.device.type != "arrays":
        return x
    memory: Any = x.untyped_storage()
    return torch.from_numpy(memory.array).view(x.dtype).as_strided(x.shape, x.stride(), x.storage_offset())


def as_strided(keys: Any, x: Tensor, size: Any, stride: Any, offset: int | None = None) -> Any:
    """By two kernels of the CPU's that touch no memory: a view without elements, which fits; then its geometry."""
    return ALIAS.call_boxed(keys, POINT.call_boxed(keys, x, [0], [1], offset), size, stride)


def view(keys: Any, x: Tensor, size: Any) -> Any:
    like = torch.empty_strided(x.shape, x.stride(), device="meta").view(size)
    return as_strided(keys, x, like.shape, like.stride())


def empty(keys: Any, *geometry: Any, make: Any = torch.empty, **options: Any) -> Any:
    like = make(*geometry, **options | {"device": "meta"})
    made: Any = torch._C._acc.create_empty_tensor((0,), like.dtype)
    room = like.untyped_storage().nbytes() // 16 * 16 + 16  # never none, and any dtype's views fit
    made.untyped_storage().array = np.empty(room, np.uint8)
    return as_strided(keys, made, like.shape, like.stride())


def empty_strided(keys: Any, *geometry: Any, **options: Any) -> Any:
    return empty(keys, *geometry, make=torch.empty_strided, **options)


def copy_from(x: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    on_cpu(to).copy_(on_cpu(x), non_blocking)
    return to


def mm(x: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(on_cpu(x).numpy() @ on_cpu(y).numpy()).to("arrays")


GEOMETRY = {"as_strided": as_strided, "_reshape_alias": as_strided, "view": view}
for name, kernel in (GEOMETRY | {"empty.memory_format": empty, "empty_strided": empty_strided}).items():
    ATEN.impl(name, kernel, "PrivateUse1", with_keyset=True)
for name, kernel in {"_copy_from": copy_from, "mm": mm}.items():
    ATEN.impl(name, kernel, "PrivateUse1")


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """``change`` in nested lists and tuples."""
    return type(tree)(mapped(change, each) for each in tree) if isinstance(tree, (list, tuple)) else change(tree)


if __name__ == "__main__":
    print("accelerator:", torch.accelerator.current_accelerator(), "of", torch.accelerator.device_count())
    x = torch.arange(6.0).view(2, 3).to("arrays")
    print("product:", x.device, (x[1:] @ x.t()).cpu())
