"""The type of a gradient: a plain tensor gets a plain one, a wrapper its class's choice.

Backward formulas mix what they find: beside a wrapped weight, the gradient of a plain bias would be a wrapper. Torch
can't make such a Parameter fake (the next compilation fails), and optimizers keep wrapper state for a plain leaf. So
each tensor that requires grad and meets a wrapper gets one hook, which coerces its gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from .policy import Gradients


def keep_gradient(tensor: torch.Tensor) -> None:
    """Sees to it that the gradient of ``tensor``, which meets a wrapper of another class, will be of its own type."""
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return
    hooks = tensor._backward_hooks
    if hooks is None or not any(type(hook) is _Coerce for hook in hooks.values()):
        tensor.register_hook(_Coerce(type(tensor)))


class _Coerce:
    """A tensor hook that turns a gradient into what a leaf of class ``owner`` gets."""

    def __init__(self, owner: type) -> None:
        self.owner = owner

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return coerce(gradient, self.owner)


def coerce(gradient: Any, owner: type) -> Any:
    """``gradient`` as the type that a tensor of class ``owner`` gets; itself where it is that already."""
    choice = getattr(owner, "gradients", Gradients.PLAIN)
    if choice is Gradients.SAME:
        return gradient
    return gradient.to_plain() if hasattr(type(gradient), "declaration") else gradient
