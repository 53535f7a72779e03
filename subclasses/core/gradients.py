"""The type of a gradient: a plain tensor gets a plain one, a wrapper its class's choice.

Backward formulas mix what they find: beside a wrapped weight, the gradient of a plain bias would be a wrapper. Torch
can't make such a Parameter fake (the next compilation fails), and optimizers keep wrapper state for a plain leaf. So
each tensor that requires grad and meets a wrapper of another class gets one hook, which gives its gradient its type.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import getrefcount
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from .fields import context_of, inner_tensors, is_layer, is_wrapper
from .policy import Gradients
from .private import gradient_hooks, never_compile

_dynamo_traces = torch.compiler.is_dynamo_compiling  # 0.15 us less than ``is_compiling``, which holds for export, too


class Layer(NamedTuple):
    """One level of wrapping: what is needed to put it on a gradient."""

    cls: Any
    context: dict[str, Any]


def layers_of(tensor: Any) -> tuple[Layer, ...]:
    """The levels of wrapping of ``tensor``, the outermost first. A class with several inner tensors is the last one."""
    layers: list[Layer] = []
    while is_layer(tensor):
        layers.append(Layer(type(tensor), context_of(tensor)))
        single = type(tensor).declaration.single
        if single is None:
            break
        tensor = getattr(tensor, single.name)
    return tuple(layers)


def dressed(gradient: Any, layers: tuple[Layer, ...]) -> Any:
    """``gradient`` as the type that a tensor with these layers chooses; itself where it is that. Differentiable."""
    if _keeps_class(layers) and not layers[0].cls.can_encode():
        return gradient  # as it comes: nothing says how it would become one of its class
    if not torch.compiler.is_compiling() and _fits(gradient, layers):
        return gradient
    plain = as_plain(gradient)
    if not _keeps_class(layers):
        return plain
    cls, context = layers[0]
    return cls.from_plain(dressed(plain, layers[1:]), **context)


def as_plain(gradient: Any) -> Any:
    """``gradient`` as a plain tensor; itself where it is one. While Dynamo traces, an operator: it takes a gradient for
    what the forward gave, and AOTAutograd may hand a plain one."""
    if torch.compiler.is_compiling():
        return torch.ops.lamina.as_plain(gradient)
    return _as_plain(gradient)


def _as_plain(gradient: Any) -> Any:
    return gradient.to_plain() if is_layer(gradient) else gradient


_library = torch.library.Library("lamina", "FRAGMENT")
_library.define("as_plain(Tensor gradient) -> Tensor")
_library.impl("as_plain", _as_plain, "CompositeImplicitAutograd")


class GradientHook:
    """A hook of a tensor that gives its gradient the type of the tensor's choice, whichever type autograd hands it.
    Knows the layers of the tensor, not the tensor itself: that would be a cycle, which keeps memory.

    Every step calls it for every wrapped parameter, and nearly always the gradient is of its type already. Seeing that
    takes 0.4 us, and None, by which torch keeps the gradient, is cheaper than the gradient itself, which torch checks.
    """

    __slots__ = ("chain", "layers")

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self.layers = layers
        self.chain = tuple(_chain(layers))

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor | None:
        held: Any = gradient
        for cls, name in self.chain:
            if type(held) is not cls:
                return dressed(gradient, self.layers)  # type: ignore[no-any-return]
            held = getattr(held, name) if name else None
        if type(held) is torch.Tensor and not _dynamo_traces():  # nearly always
            return None
        if is_layer(held) or torch.compiler.is_compiling():
            return dressed(gradient, self.layers)  # type: ignore[no-any-return]
        return None


def _chain(layers: tuple[Layer, ...]) -> Iterator[tuple[Any, str | None]]:
    """The classes of a gradient that fits, the outermost first, each with the name of the tensor inside: None where
    there are several, of which the class is the judge."""
    for depth, (cls, _) in enumerate(layers):
        if not _keeps_class(layers[depth:]):
            return
        single = cls.declaration.single
        yield cls, single.name if single else None


def keep_gradient(tensor: torch.Tensor) -> None:
    """Sees to it that the gradient of ``tensor``, which meets a wrapper of another class, will be of its own type."""
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return
    hooks = gradient_hooks(tensor)
    if hooks is None or not any(isinstance(hook, GradientHook) for hook in hooks.values()):
        handle = tensor.register_hook(GradientHook(layers_of(tensor)))
        _put_first(gradient_hooks(tensor), handle.id)


def _put_first(hooks: Any, key: int) -> None:
    """Lets the user's own hooks see the gradient as it will be. Autograd walks the storage of the dict, so that
    ``move_to_end`` would change nothing."""
    if len(hooks) == 1:
        return
    others = [(k, hook) for k, hook in hooks.items() if k != key]
    ours = hooks[key]
    hooks.clear()
    hooks[key] = ours
    hooks.update(others)


never_compile(GradientHook.__call__)


def _fits(gradient: Any, layers: tuple[Layer, ...]) -> bool:
    if not _keeps_class(layers):
        return not is_layer(gradient)
    single = layers[0].cls.declaration.single
    return type(gradient) is layers[0].cls and (single is None or _fits(getattr(gradient, single.name), layers[1:]))


def _keeps_class(layers: tuple[Layer, ...]) -> bool:
    return bool(layers) and layers[0].cls.gradients is Gradients.SAME


def _count(args: tuple[Any, ...]) -> int:
    return getrefcount(args[0])


_holder = SimpleNamespace(held=object())
# What this Python counts where one attribute holds something, and where only torch holds an argument of a handler:
# torch itself, the arguments and the question. A hook that was given it holds it once more, as does a name.
HELD_ONCE = getrefcount(_holder.held)
HELD_BY_TORCH = 1 + _count((object(),))


def shares_nothing(tensor: torch.Tensor) -> bool:
    """Whether nothing else holds the inner tensors of ``tensor``, if it is a wrapper, at any depth. Compiled code gives
    two leaves with one gradient two wrappers around one tensor."""
    if type(tensor) is torch.Tensor or not is_wrapper(tensor):
        return True
    names = type(tensor).__tensor_flatten__(tensor)[0]  # type: ignore[attr-defined]
    if any(getrefcount(getattr(tensor, name)) > HELD_ONCE for name in names):
        return False
    return all(shares_nothing(inner) for inner in inner_tensors(tensor))
