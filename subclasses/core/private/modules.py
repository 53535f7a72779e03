"""Modules: their own dictionaries, and how torch calls and compiles them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import CodeType
from typing import Any, cast

import torch

# A module's dictionaries: its own parameters, absent ones too, whatever its class makes of ``named_parameters``; hooks.
own_parameters: Callable[[torch.nn.Module], dict[str, torch.nn.Parameter | None]] = attrgetter("_parameters")
load_hooks: Callable[[torch.nn.Module], dict[int, Callable[..., Any]]] = attrgetter("_load_state_dict_post_hooks")
forward_hooks: Callable[[torch.nn.Module], dict[int, Callable[..., Any]]] = attrgetter("_forward_hooks")


def module_call_code() -> CodeType:
    """The code that runs a module's forward, with the module as ``self``."""
    return torch.nn.Module._call_impl.__code__


def uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """The module under what ``torch.compile(module)`` returned; any other module itself."""
    return cast(torch.nn.Module, getattr(module, "_orig_mod", module))


def name_before_compiling(name: str) -> str:
    """A parameter's name without the steps that ``torch.compile(module)`` puts in it."""
    return name.replace("_orig_mod.", "")


def drop_weak_weights(module: torch.nn.RNNBase) -> None:
    """An RNN holds weak references to its own weights, and no referenced tensor can be swapped."""
    module._flat_weight_refs = []


def renew_weak_weights(module: torch.nn.RNNBase) -> None:
    module._init_flat_weights()
