"""Autograd: which backward runs, and the hooks of a tensor."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from operator import attrgetter
from types import CodeType
from typing import Any, cast

import torch

# The id of the backward that this thread runs, -1 outside one. Set in the device threads of autograd too.
backward_id: Callable[[], int] = torch._C._current_graph_task_id

# The sequence number that the next autograd node made by this thread gets.
next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def running_sequence_number() -> int | None:
    """The sequence number of the autograd node whose backward runs in this thread: when it was made, in its forward."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def running_node() -> str | None:
    """The name of the autograd node whose backward runs in this thread, such as ``AccumulateGrad``; None between nodes,
    where the engine adds up gradients, and outside of a backward."""
    node = torch._C._current_autograd_node()
    return None if node is None else str(node.name()).rpartition("::")[2]


_node: Callable[[], Any] = torch._C._current_autograd_node
_ACCUMULATE = attrgetter("AccumulateGrad")(torch._C._functions)  # its stubs lack the name
_function_modes: Callable[[], int] = torch._C._len_torch_function_stack


def is_taking_gradient() -> bool:
    """Whether autograd is at the node that makes a gradient the ``grad`` of a leaf, which has none yet. 0.4 us there,
    0.1 elsewhere."""
    node = _node()
    if type(node) is not _ACCUMULATE:
        return False
    if not _function_modes():
        return node.variable.grad is None
    with torch._C.DisableTorchFunction():  # reading ``grad`` would be a call for modes
        return node.variable.grad is None


def backward_context() -> contextvars.Context | None:
    """The context of the thread that called ``backward()``: torch hands it to the device threads that it works with."""
    if not torch._C._is_key_in_tls("context"):
        return None
    return cast(contextvars.Context, torch._C._get_obj_in_tls("context"))


def engine_code() -> CodeType:
    """The code of the function that runs autograd's engine: on the stack, everything above it waits for a backward."""
    return torch.autograd.graph._engine_run_backward.__code__


# The dictionary behind ``register_hook``, or None; the handles that users hold refer to this very object.
gradient_hooks: Callable[[torch.Tensor], dict[int, Callable[..., Any]] | None] = attrgetter("_backward_hooks")


def set_gradient_hooks(tensor: torch.Tensor, hooks: dict[int, Callable[..., Any]] | None) -> None:
    """Makes autograd call ``hooks``, for a tensor that doesn't require grad yet too: ``register_hook`` refuses it."""
    tensor._backward_hooks = hooks


def reattach_hooks(tensor: torch.Tensor) -> None:
    """After a swap the Python object has its hooks, but its new C++ tensor doesn't call them: sets both kinds anew."""
    tensor._backward_hooks = tensor._backward_hooks
    tensor._post_accumulate_grad_hooks = tensor._post_accumulate_grad_hooks
