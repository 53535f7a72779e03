"""Operators: their schemas, kernels and the C++ callables under them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

# The C++ callable under an overload: one Python frame (0.3 us) less than calling the overload.
call_of: Callable[[OpOverload], Callable[..., Any]] = attrgetter("_op")
schema_of: Callable[[OpOverload], torch.FunctionSchema] = attrgetter("_schema")


def has_kernel(op: OpOverload, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))


def kernel_at(op: OpOverload, key: str) -> Callable[..., Any]:
    """The kernel that a dispatch key has, called as if the dispatcher had chosen it."""
    return partial(op._op_dk, getattr(torch._C.DispatchKey, key))


# The product of two int8 matrices, summed in int32. Wrong, without a word, where a dim of size 1 or an expanded one has
# other strides than it would have after a copy.
int8_product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch._int_mm

_profiler = torch.ops.profiler
# The operators of ``record_function``, around each step of an optimizer. No tensors are among their arguments.
PROFILER_MARKS = frozenset(
    (_profiler._record_function_enter_new.default, _profiler._record_function_exit._RecordFunction)
)


def composite_kernel(op: OpOverload) -> Callable[..., Any]:
    """The kernel of ``op`` that is made of other operators: the one in C++ where there is one. ``decompose`` prefers
    one in Python, and torch.export puts some there that only decline."""
    if has_kernel(op, "CompositeImplicitAutograd"):
        return kernel_at(op, "CompositeImplicitAutograd")
    return op.decompose


def traced_by(op: OpOverload, kernel: Callable[..., Any]) -> None:
    """Has tracers call ``kernel`` for ``op`` on tensors of the meta device, above autograd; where torch has them call
    one of its own there, that."""
    if torch._C.DispatchKey.AutogradMeta not in op.py_kernels:
        op.py_impl(torch._C.DispatchKey.AutogradMeta)(kernel)


# ``aten::add``, for ``torch.ops.aten.add``.
name_of_packet: Callable[[OpOverloadPacket], str] = attrgetter("_qualified_op_name")


# The C++ modules through which torch's Python functions reach operators, as users know them.
_BRIDGES = ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")


def bridges_to(name: str) -> list[str]:
    """Where Python finds an operator without ``torch.ops``: ``torch._C._nn.linear`` for ``linear``. Functions of the
    same name in Python are marked; ``torch._VF`` is the way past those that hide one in ``torch``."""
    found = [f"torch._C.{bridge}.{name}" for bridge in _BRIDGES if hasattr(getattr(torch._C, bridge, None), name)]
    python = [where for where in (torch, torch.nn.functional) if _has_function(where, name)]
    if found and torch in python:
        found.append(f"torch._VF.{name}")
    found += [f"torch.Tensor.{name}"] * hasattr(torch._C.TensorBase, name)
    return [*found, *(f"{where.__name__}.{name} (in Python)" for where in python)]


def _has_function(module: ModuleType, name: str) -> bool:
    found = getattr(module, name, None)
    return isinstance(found, FunctionType) and found.__name__ == name


def decomposition_of(op: OpOverload) -> Callable[..., Any] | None:
    """Torch's decomposition in Python, for its compilers."""
    from torch._decomp import decomposition_table  # half a second

    return decomposition_table.get(op)


def attention_order() -> list[str]:
    """The kernels of attention, in the order in which CUDA is to try them."""
    names = {"FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "efficient", "CUDNN_ATTENTION": "cudnn", "MATH": "math"}
    backend = torch._C._SDPBackend
    by_number = {int(getattr(backend, name)): short for name, short in names.items()}
    return [by_number[number] for number in torch._C._get_sdp_priority_order() if number in by_number]


@cache
def unbatched_attention_is_fused() -> bool:
    """Whether this torch takes attention without a batch for a batch of one, on the CPU: from 2.14 on."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        query = torch.zeros(1, 2, 8, device="cpu")
        return bool(torch._fused_sdp_choice(query, query, query))
