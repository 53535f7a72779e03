"""The repr of a wrapper: its fields, and what a plain tensor's repr would add. Never dispatches on the class itself."""

from __future__ import annotations

from typing import Any

from .declaration import Role


def describe(value: Any, *, values: bool = False) -> str:
    """``Class(field=..., ...)``, with the inner tensors' values or (short form) only shape and dtype."""
    cls = type(value)
    if not hasattr(cls, "declaration") or not values:
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        return f"{cls.__name__}({dtype}{list(getattr(value, 'shape', ()))})"
    parts = [f"{f.name}={getattr(value, f.name)!r}" for f in cls.declaration.fields if _is_shown(value, f)]
    if str(value.device) != str(next(iter(_tensors(value))).device):
        parts.append(f"device={value.device}")
    if value.grad_fn is not None:
        parts.append(f"grad_fn=<{type(value.grad_fn).__name__}>")
    elif value.requires_grad:
        parts.append("requires_grad=True")
    text = f"{cls.__name__}({', '.join(parts)})"
    return f"Parameter containing:\n{text}" if getattr(value, "_is_param", False) else text


def _is_shown(value: Any, field: Any) -> bool:
    return not (field.role is not Role.INNER and getattr(value, field.name) == field.default)


def _tensors(value: Any) -> list[Any]:
    return [getattr(value, name) for name in type(value).__tensor_flatten__(value)[0]]
