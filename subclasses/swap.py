"""Exchanges the tensor under a Parameter: whoever holds the Parameter, an optimizer say, sees the new one.

``torch.utils.swap_tensors`` does the exchange. What it leaves behind is carried here: attributes, ``.grad``, hooks.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from .core.copying import extras
from .core.errors import LaminaError
from .core.fields import leaf_tensors
from .core.gradients import GradientHook, dressed, layers_of
from .core.private import (
    drop_weak_weights,
    gradient_hooks,
    own_parameters,
    reattach_hooks,
    reference_count,
    renew_weak_weights,
    set_gradient_hooks,
)
from .core.wrapper import WrapperTensor

Wrap = Callable[[torch.Tensor], torch.Tensor]


class ParameterInUseError(LaminaError, RuntimeError):
    """A Parameter can't be exchanged: somebody holds on to the tensor under it, and would go on with the old one."""

    def __init__(self, name: str, parameter: torch.Tensor, holder: str, advice: str) -> None:
        self.name, self.holder = name, holder
        super().__init__(
            f"parameter {name!r} of shape {tuple(parameter.shape)} can't be exchanged: {holder}. {advice} "
            "All parameters are as they were."
        )


class WrapResultError(LaminaError, ValueError):
    """What ``wrap`` returned can't stand for the parameter."""

    def __init__(self, name: str, parameter: torch.Tensor, problem: str, advice: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(
            f"wrap({name!r}, {parameter.dtype} of shape {tuple(parameter.shape)} on {parameter.device}) {problem}. "
            f"{advice} All parameters are as they were."
        )


Taken = dict[int, tuple[str, torch.Tensor]]  # inner tensors by id, with the name of their parameter; keeps them alive


def _called(name: str, parameter: nn.Parameter, wrap: Wrap) -> torch.Tensor:
    try:
        return wrap(parameter.detach())
    except Exception as error:
        if sys.version_info >= (3, 11):  # what wrap raised stays what it is; it says where, where Python can
            error.add_note(f"raised by wrap() for the parameter {name!r}; all parameters are as they were")
        raise


def wrapped(name: str, parameter: nn.Parameter, wrap: Wrap, taken: Taken) -> nn.Parameter:
    """``wrap`` of the parameter, as a Parameter. ``taken``: the inner tensors of the parameters before it.

    Raises:
        WrapResultError: what ``wrap`` returned can't stand for ``parameter``.
    """
    result = _called(name, parameter, wrap)
    kind = type(result).__name__
    if not isinstance(result, WrapperTensor):
        raise WrapResultError(name, parameter, f"returned a {kind}", "Return a lamina.WrapperTensor.")
    for what in ("shape", "dtype", "device"):
        if getattr(result, what) != getattr(parameter, what):
            problem = f"returned a {kind} of {what} {getattr(result, what)}"
            raise WrapResultError(name, parameter, problem, f"The {what} has to stay.")
    if result.requires_grad:
        raise WrapResultError(name, parameter, f"returned a {kind} that requires grad", "Return result.detach().")
    for leaf in leaf_tensors(result):
        owner, _ = taken.setdefault(id(leaf), (name, leaf))
        if owner != name:
            problem = f"returned a {kind} that holds an inner tensor of {owner!r} too"
            raise WrapResultError(name, parameter, problem, "Give each parameter inner tensors of its own.")
    new = nn.Parameter(result, requires_grad=parameter.requires_grad)
    for attribute in attributes_of(parameter):
        if attribute in vars(new) or (hasattr(type(new), attribute) and not hasattr(nn.Parameter, attribute)):
            problem = f"returned a {kind}, which has an attribute {attribute!r}; a user put one on the parameter too"
            raise WrapResultError(name, parameter, problem, "Rename or delete the parameter's.")
    return new


def check_free(name: str, parameter: torch.Tensor) -> None:
    """Nobody holds on to the tensor under ``parameter``.

    Raises:
        ParameterInUseError: somebody does. Says who, as far as that can be known, and what to do.
    """
    weak = weakref.getweakrefcount(parameter)
    if weak:
        holder = f"it has {weak} weak reference(s), and torch.utils.swap_tensors refuses to swap such a tensor"
        advice = (
            "Wrap or unwrap before they are made (a compiled optimizer step leaves one for good), or delete their "
            "holders (weakref.getweakrefs(parameter) lists them)."
        )
        raise ParameterInUseError(name, parameter, holder, advice)
    count = reference_count(parameter)
    if count > 1:
        holder = f"{count - 1} reference(s) from C++ hold the tensor under it: a live autograd graph, or a view"
        advice = "Delete the outputs, losses and views that you hold (backward() alone does not), then call again."
        raise ParameterInUseError(name, parameter, holder, advice)


def exchange(name: str, parameter: torch.Tensor, new: nn.Parameter, undo: ExitStack) -> None:
    """Puts the tensor of ``new`` under ``parameter``, with the attributes, ``.grad`` and hooks that ``parameter`` has.
    ``undo`` gets what takes it back; ``new`` holds the old tensor until then.

    Raises:
        ParameterInUseError: ``torch.utils.swap_tensors`` refuses.
    """
    attributes, gradient = attributes_of(parameter), parameter.grad
    _swap(name, parameter, new)
    undo.callback(_swap, name, parameter, new)
    vars(parameter).update(attributes)
    if gradient is not None:
        parameter.grad = dressed(gradient, layers_of(parameter))
    undo.callback(set_gradient_hook(parameter))


def _swap(name: str, parameter: torch.Tensor, new: torch.Tensor) -> None:
    try:
        torch.utils.swap_tensors(parameter, new)
    except RuntimeError as error:
        raise ParameterInUseError(name, parameter, f"torch says: {error}", "Delete whoever holds it.") from error
    reattach_hooks(parameter)


def attributes_of(parameter: torch.Tensor) -> dict[str, Any]:
    """What a user put on ``parameter``: neither its fields nor the mark of a Parameter."""
    if isinstance(parameter, WrapperTensor):
        own = extras(parameter)
    else:  # what a detached one has, too, are the fields of a wrapper class that is not ours
        own = {name: value for name, value in vars(parameter).items() if name not in vars(parameter.detach())}
    return {name: value for name, value in own.items() if name != "_is_param"}


def set_gradient_hook(parameter: torch.Tensor) -> Callable[[], None]:
    """Makes the gradient of the leaf ``parameter`` one of its own choice, before its other hooks see it. Replaces the
    hook that is there for this already, from an op say: it may be of another choice. Returns what takes it back."""
    before = gradient_hooks(parameter)
    content = list(before.items()) if before else []
    hooks: dict[int, Any] = OrderedDict() if before is None else before
    others = [(key, hook) for key, hook in content if not isinstance(hook, GradientHook)]
    hooks.clear()
    hooks[RemovableHandle(hooks).id] = GradientHook(layers_of(parameter))  # the first: autograd keeps to this order
    hooks.update(others)
    set_gradient_hooks(parameter, hooks)

    def undo() -> None:
        hooks.clear()
        hooks.update(content)
        set_gradient_hooks(parameter, before)

    return undo


def drop_gradient_hook(parameter: torch.Tensor) -> None:
    """Removes the hook that ``set_gradient_hook`` added."""
    hooks = gradient_hooks(parameter)
    if hooks is None:
        return
    for key in [k for k, hook in hooks.items() if isinstance(hook, GradientHook)]:
        del hooks[key]
    set_gradient_hooks(parameter, hooks or None)


@contextmanager
def transaction(root: nn.Module, parameters: list[tuple[str, nn.Parameter]]) -> Iterator[ExitStack]:
    """Refuses parameters that are in use before anything is done, and takes everything back if the block raises."""
    recurrent = [m for m in root.modules() if isinstance(m, nn.RNNBase)]
    for rnn in recurrent:
        drop_weak_weights(rnn)
    try:
        for name, parameter in parameters:
            check_free(name, parameter)
        with torch.inference_mode(False), ExitStack() as undo:
            yield undo
            undo.pop_all()
    finally:
        for rnn in recurrent:
            renew_weak_weights(rnn)
        for module in root.modules():
            _put_anew(own_parameters(module))


def _put_anew(parameters: dict[str, Any]) -> None:
    """Dynamo may look no further than to a module's dictionary: if nothing was put there, it runs the code that it
    compiled for what was (torch 2.11)."""
    for name in list(parameters):
        parameters[name] = parameters.pop(name)
