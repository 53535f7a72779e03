"""The repr of a wrapper: its fields, and what a plain tensor's repr would add. Never dispatches on the class itself."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.autograd import forward_ad

from .declaration import Field, Role
from .fields import inner_tensors
from .private import briefly, metadata_only


def text_of(wrapper: Any) -> str:
    """``Class(field=..., ...)``, with the inner tensors' values; context that is as by default is left out."""
    cls = type(wrapper)
    with briefly():  # there are several tensors to show
        parts = [f"{f.name}={getattr(wrapper, f.name)!r}" for f in cls.declaration.fields if _is_shown(wrapper, f)]
    if str(wrapper.device) != str(next(inner_tensors(wrapper)).device):
        parts.append(f"device={wrapper.device}")
    if wrapper.grad_fn is not None:
        parts.append(f"grad_fn=<{type(wrapper.grad_fn).__name__}>")
    elif wrapper.requires_grad:
        parts.append("requires_grad=True")
    if (tangent := _tangent(wrapper)) is not None:
        parts.append(f"tangent={tangent!r}")
    text = f"{cls.__name__}({', '.join(parts)})"
    return f"Parameter containing:\n{text}" if isinstance(wrapper, nn.Parameter) else text


def _tangent(wrapper: Any) -> Any:
    """Of a dual tensor, in the scope that made it. Unpacking views the primal: not as an op of the class."""
    with metadata_only():
        return forward_ad.unpack_dual(wrapper).tangent


def _is_shown(wrapper: Any, field: Field) -> bool:
    return field.role is Role.INNER or getattr(wrapper, field.name) != field.default
