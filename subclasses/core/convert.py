"""``to_plain`` and ``from_plain``: the two differentiable ways between a wrapper and its values."""

from __future__ import annotations

from typing import Any

import torch

from .checks import check_tensor
from .codec import decoded, encoded
from .fields import is_layer, leaf_tensors
from .gradients import dressed, layers_of
from .private import is_alias


class _ToPlain(torch.autograd.Function):
    """Decodes all levels, and copies once. Backward: the gradient, as the type that the wrapper's class chooses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(wrapper: Any) -> torch.Tensor:
        values = decoded(wrapper)
        while is_layer(values):
            values = decoded(values)
        shared = torch.compiler.is_compiling() or any(is_alias(values, t) for t in leaf_tensors(wrapper))
        return values.clone() if shared else values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.layers = layers_of(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return dressed(gradients[0], ctx.layers)


class _FromPlain(torch.autograd.Function):
    """Encodes. Backward: the gradient, as the type of what was encoded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: torch.Tensor, cls: Any, context: dict[str, Any]) -> Any:
        return encoded(cls, values.detach().clone(), context)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.layers = layers_of(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return dressed(gradients[0], ctx.layers), None, None


def to_plain(wrapper: Any) -> Any:
    """The values of ``wrapper``, all levels of wrapping taken off; shares no memory with it."""
    return _ToPlain.apply(wrapper)  # type: ignore[no-untyped-call]


def from_plain(cls: Any, values: torch.Tensor, context: dict[str, Any]) -> Any:
    """A ``cls`` that holds a copy of ``values``.

    Raises:
        InnerTensorError, LayoutError: ``values`` are no strided tensor.
    """
    check_tensor(cls, "values", values)
    return _FromPlain.apply(values, cls, context)  # type: ignore[no-untyped-call]
