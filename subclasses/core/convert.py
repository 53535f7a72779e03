"""``to_plain`` and ``from_plain``: the two differentiable ways between a wrapper and its values."""

from __future__ import annotations

from typing import Any

import torch

from .gradients import coerce


class _ToPlain(torch.autograd.Function):
    """Decodes one level. Backward: the gradient, as the type that the wrapper's class chooses."""

    @staticmethod
    def forward(ctx: Any, wrapper: Any) -> torch.Tensor:
        ctx.owner = type(wrapper)
        values: torch.Tensor = wrapper.decode()
        return values.clone() if any(values is t for t in vars(wrapper).values()) else values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return coerce(gradients[0], ctx.owner)


class _FromPlain(torch.autograd.Function):
    """Encodes. Backward: the gradient, as a plain tensor."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, cls: Any, context: dict[str, Any]) -> Any:
        ctx.owner = type(values)
        return cls.encode(values.detach().clone(), **context)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return coerce(gradients[0], ctx.owner), None, None


def to_plain(wrapper: Any) -> Any:
    """The values of ``wrapper``, all levels of wrapping taken off; shares no memory with it."""
    values = _ToPlain.apply(wrapper)  # type: ignore[no-untyped-call]
    while hasattr(type(values), "declaration"):
        values = _ToPlain.apply(values)  # type: ignore[no-untyped-call]
    return values


def from_plain(cls: Any, values: torch.Tensor, context: dict[str, Any]) -> Any:
    """A ``cls`` that holds a copy of ``values``."""
    return _FromPlain.apply(values, cls, context)  # type: ignore[no-untyped-call]
