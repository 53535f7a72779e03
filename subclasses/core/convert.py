"""``to_plain`` and ``from_plain``: the two differentiable ways between a wrapper and its values."""

from __future__ import annotations

from typing import Any

import torch

from .checks import check_tensor
from .fields import inner_tensors
from .gradients import dressed, layers_of
from .private import is_alias, is_compiling


class _ToPlain(torch.autograd.Function):
    """Decodes one level. Backward: the gradient, as the type that the wrapper's class chooses."""

    @staticmethod
    def forward(ctx: Any, wrapper: Any) -> torch.Tensor:
        ctx.layers = layers_of(wrapper)
        values: torch.Tensor = wrapper.decode()
        shared = is_compiling() or any(is_alias(values, t) for t in inner_tensors(wrapper))
        return values.clone() if shared else values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return dressed(gradients[0], ctx.layers)


class _FromPlain(torch.autograd.Function):
    """Encodes. Backward: the gradient, as the type of what was encoded."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, cls: Any, context: dict[str, Any]) -> Any:
        ctx.layers = layers_of(values)
        return cls.encode(values.detach().clone(), **context)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return dressed(gradients[0], ctx.layers), None, None


def to_plain(wrapper: Any) -> Any:
    """The values of ``wrapper``, all levels of wrapping taken off; shares no memory with it."""
    values = _ToPlain.apply(wrapper)  # type: ignore[no-untyped-call]
    while hasattr(type(values), "declaration"):
        values = _ToPlain.apply(values)  # type: ignore[no-untyped-call]
    return values


def from_plain(cls: Any, values: torch.Tensor, context: dict[str, Any]) -> Any:
    """A ``cls`` that holds a copy of ``values``.

    Raises:
        InnerTensorError, LayoutError: ``values`` are no strided tensor.
    """
    check_tensor(cls, "values", values)
    return _FromPlain.apply(values, cls, context)  # type: ignore[no-untyped-call]
