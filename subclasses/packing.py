"""``pack_`` and ``unpack_``: a module's int8 weights in the layout of the CPU's kernels, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .core.private import name_before_compiling, uncompiled
from .parameters import Where, wrap_parameters
from .scaled_int8 import PackedError, PackedInt8Tensor, ScaledInt8Tensor
from .scaled_int8.packed import problem_of

_SHOWN = 8  # parameters in a message


def pack_(module: nn.Module, *, where: Where | None = None) -> nn.Module:
    """Replaces the ``ScaledInt8Tensor`` weights of linear layers by packed ones, in place: for inference on a CPU. Each
    Parameter object stays the one that it is. ``torch.save`` of them writes the portable layout; loading into packed
    weights is refused: call ``unpack_`` first.

    Args:
        module: its weights must not require grad.
        where: which parameters, as for ``wrap_parameters``. By default those that only ``nn.Linear`` layers hold: a
            weight that an embedding shares stays as it is, since looking up rows of a packed one unpacks all of it.

    Returns:
        ``module``.

    Raises:
        PackedError: there is nothing to pack, a weight requires grad, or can't have the layout.
        ParameterInUseError: a graph, a view or a weak reference holds on to a weight. In every case all parameters are
            as they were.
        TypeError: ``module`` is no module, or ``where`` no function.
    """
    chosen = _chosen(module, ScaledInt8Tensor, where)
    problems = {name: problem_of(parameter) for name, parameter in chosen.items()}
    told = [f"{name}: {problem}." for name, problem in problems.items() if problem]
    if told:
        more = f" (and {len(told) - _SHOWN} more)" if len(told) > _SHOWN else ""
        raise PackedError("\n".join(["these weights can't be packed, and nothing was changed:", *told[:_SHOWN]]) + more)
    return _exchanged(module, chosen, ScaledInt8Tensor.pack)


def unpack_(module: nn.Module) -> nn.Module:
    """Replaces all packed weights of ``module`` by the ``ScaledInt8Tensor`` that they were, bit for bit, in place.

    Returns:
        ``module``.

    Raises:
        PackedError: no parameter is packed.
    """
    chosen = _chosen(module, PackedInt8Tensor, lambda name, owner, parameter: True)
    return _exchanged(module, chosen, PackedInt8Tensor.unpack)


def _chosen(module: nn.Module, cls: type[torch.Tensor], where: Where | None) -> dict[str, Any]:
    """Parameters of ``cls`` by name; a tied one under each of its names."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"packing takes a torch.nn.Module, got a {type(module).__name__}")
    if where is not None and not callable(where):
        raise TypeError(f"packing: where is a predicate (name, module, parameter) -> bool, got {where!r}")
    sites = [
        (name_before_compiling(f"{prefix}.{name}" if prefix else name), owner, parameter)
        for prefix, owner in uncompiled(module).named_modules(remove_duplicate=False)
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if issubclass(type(parameter), cls)
    ]
    if where is None:
        elsewhere = {id(p) for _, owner, p in sites if not (isinstance(owner, nn.Linear) and p is owner.weight)}
        chosen = {name: p for name, _, p in sites if id(p) not in elsewhere}
    else:
        chosen = {name: p for name, owner, p in sites if where(name, owner, p)}
    if not chosen:
        asked = "that only linear layers hold" if where is None else "that was chosen"
        raise PackedError(f"this {type(module).__name__} has no parameter that is a {cls.__name__} {asked}.")
    return chosen


def _exchanged(module: nn.Module, chosen: dict[str, Any], exchange: Any) -> nn.Module:
    ids = {id(parameter) for parameter in chosen.values()}
    return wrap_parameters(module, exchange, where=lambda name, owner, parameter: id(parameter) in ids)
