"""Who answers at the Python key: a dispatch mode, or a wrapper class, and by which of its rules."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...subclasses.core.private import OpOverload
from ...subclasses.core.table import How, op_table
from ...subclasses.core.wrapper import WrapperTensor


class Handler(NamedTuple):
    """``layer``: "dispatch mode" or "class"; ``target``: its name, and the rule; ``where``: file and line."""

    layer: str
    target: str
    where: str


def handler_of_call(op: OpOverload, modes: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Handler | None:
    """The handler that torch asks first: the mode entered last, else the first class among the arguments (a subclass
    of another one before it)."""
    if modes:
        mode = type(modes[-1])
        return Handler("dispatch mode", f"{mode.__name__} for {op.name()}", place_of(mode.__torch_dispatch__))
    classes: list[Any] = _in_order([type(each) for each in tensors if _has_handler(type(each))])
    if not classes:
        return None
    cls = classes[0]
    if not issubclass(cls, WrapperTensor):
        return Handler("class", f"{cls.__name__} for {op.name()}", place_of(cls.__torch_dispatch__))
    entry = op_table(cls)[op]
    where = entry.where if entry.how is not How.FALLBACK else place_of(cls)
    return Handler("class", f"{cls.__name__} for {op.name()}: {entry.how.value} {entry.name}", _short(where))


def place_of(function: Any) -> str:
    """File and line of a function or class, under its decorators; "" where it has none, as those made in C++."""
    function = inspect.unwrap(function)
    try:
        file, (_, line) = inspect.getsourcefile(function), inspect.getsourcelines(function)
    except (OSError, TypeError):
        return ""
    return _short(f"{file}:{line}")


def _short(where: str) -> str:
    return Path(where).name


def _has_handler(cls: type) -> bool:
    return getattr(cls, "__torch_dispatch__", None) not in (None, torch.Tensor.__torch_dispatch__)


def _in_order(classes: Sequence[type]) -> list[Any]:
    found: list[Any] = []
    for cls in classes:
        if cls not in found:
            at = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
            found.insert(at, cls)
    return found
