"""What a user names on the command line, found: a class as `module:Class`, an operator as `aten.mm.default`."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import typer

from ..bench.named import NameNotFoundError, find_object
from ..subclasses.core.private import OpOverload
from ..subclasses.core.wrapper import WrapperTensor

T = TypeVar("T")


def load_class(target: str) -> type[WrapperTensor]:
    """The wrapper class of lamina's kind that `module:Class` names; see `load_subclass`."""
    return load_subclass(target, WrapperTensor)


def load_subclass(target: str, base: type[T]) -> type[T]:
    """The class that `module:Class` names, which derives from ``base``.

    Raises:
        typer.BadParameter: see `load_object`; or it is no such class.
    """
    found = load_object(target)
    if not (isinstance(found, type) and issubclass(found, base)) or found is torch.Tensor:
        name = f"{base.__module__.partition('.')[0]}.{base.__qualname__}"
        raise typer.BadParameter(f"{target} is no class that derives from {name}, but {found!r}")
    return found


def load_object(target: str) -> Any:
    """What `module:name` names; see `lamina.bench.named`.

    Raises:
        typer.BadParameter: the text has another form, or the module or name is not there.
    """
    try:
        return find_object(target)
    except NameNotFoundError as error:
        raise typer.BadParameter(str(error)) from None


def load_op(name: str) -> OpOverload:
    """The operator overload that a dotted name such as `aten.mm.default` means.

    Raises:
        typer.BadParameter: no such operator, or no overload is named and there are several; the text lists them.
    """
    parts = name.removeprefix("torch.ops.").replace("::", ".").split(".")
    found: object = torch.ops
    for part in parts:
        if not hasattr(found, part):
            raise typer.BadParameter(f"there is no operator {name!r}: no {part!r} in it. Write it as aten.mm.default")
        found = getattr(found, part)
    if not isinstance(found, OpOverload):
        raise typer.BadParameter(f"{name!r} names no overload{_overloads(found)}")
    return found


def _overloads(found: object) -> str:
    names: list[str] = getattr(found, "overloads", list)()
    return f"; there are: {', '.join(names)}" if names else ", such as aten.mm.default"
