"""Checks the arguments of a constructor. Only ``cls(...)`` comes by here; ops build results from checked parts."""

from __future__ import annotations

from typing import Any

import torch

from .declaration import Field, Role
from .errors import FunctorchError, GradientCutError, InnerTensorError, LayoutError
from .private import is_functorch_level


def check_fields(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The values of all fields in declaration order, defaults filled in.

    Raises:
        TypeError: too many, unknown or missing arguments, as for any Python call.
        InnerTensorError, LayoutError, GradientCutError: a value can't be held.
    """
    fields: tuple[Field, ...] = cls.declaration.fields
    values = dict(zip((f.name for f in fields), args, strict=False))
    if len(args) > len(fields):
        raise TypeError(f"{cls.__name__}() takes {_signature(fields)}, got {len(args)} positional arguments")
    for name, value in kwargs.items():
        if name in values or all(f.name != name for f in fields):
            problem = "twice" if name in values else "which it does not know"
            raise TypeError(f"{cls.__name__}() takes {_signature(fields)}, got {name!r} {problem}")
        values[name] = value
    missing = [f.name for f in fields if f.required and f.name not in values]
    if missing:
        raise TypeError(f"{cls.__name__}() takes {_signature(fields)}, misses {', '.join(missing)}")
    return [_checked(cls, f, values.get(f.name, f.default)) for f in fields]


def _signature(fields: tuple[Field, ...]) -> str:
    return "(" + ", ".join(f.name if f.required else f"{f.name}={f.default!r}" for f in fields) + ")"


def _checked(cls: Any, field: Field, value: Any) -> Any:
    if field.role is Role.CONTEXT:
        return _checked_context(cls, field.name, value)
    if field.role is Role.RUN:
        if not isinstance(value, (list, tuple)) or not value:
            raise InnerTensorError(f"{cls.__name__}: {field.name!r} takes a tuple of tensors, got {_short(value)}")
        return tuple(_checked_inner(cls, field.name, t) for t in value)
    if field.role is Role.OPTIONAL and value is None:
        return None
    return _checked_inner(cls, field.name, value)


def _checked_context(cls: Any, name: str, value: Any) -> Any:
    if _holds_tensor(value):
        raise InnerTensorError(
            f"{cls.__name__}: the context {name!r} holds a tensor, and context is static. "
            f"Declare it as `{name}: torch.Tensor`."
        )
    try:
        hash(value)
    except TypeError as error:
        raise InnerTensorError(
            f"{cls.__name__}: the context {name!r} can't be hashed: {_short(value)}. Context guards compilation and is "
            "compared by value: use a frozen dataclass, a tuple, an enum, a number or a string."
        ) from error
    return value


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, frozenset)) and any(map(_holds_tensor, value)))


def _checked_inner(cls: Any, name: str, value: Any) -> torch.Tensor:
    check_tensor(cls, name, value)
    if value.requires_grad:
        raise GradientCutError(cls, name, value)
    return value  # type: ignore[no-any-return]


def check_tensor(cls: Any, name: str, value: Any) -> None:
    """Refuses what is no strided tensor.

    Raises:
        InnerTensorError: ``value`` is no tensor.
        LayoutError: it is sparse, nested or of another layout.
    """
    if not isinstance(value, torch.Tensor):
        raise InnerTensorError(
            f"{cls.__name__}: {name!r} has to be a torch.Tensor, got {_short(value)}. Pass torch.as_tensor(value)."
        )
    if value.layout is not torch.strided:
        raise LayoutError(cls, name, value.layout)
    if not torch.compiler.is_compiling() and is_functorch_level(value):
        raise FunctorchError(cls, name)
    if value.is_nested:
        raise LayoutError(cls, name, torch.jagged)


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
