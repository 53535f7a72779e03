"""Copying and pickling: class, context, requires_grad, grad, Parameter-ness, user attributes and sharing are kept."""

from __future__ import annotations

import copy
import hashlib
import inspect
import pickle
import typing
from collections import OrderedDict
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .declaration import evaluate
from .errors import InnerTensorError
from .fields import VIEW_SOURCE, field_attributes, is_wrapper
from .fingerprint import fingerprint
from .gradients import GradientHook
from .private import TRACERS, cache_key, gradient_hooks, set_gradient_hooks


def extras(wrapper: Any) -> dict[str, Any]:
    """The attributes that a user put on the instance; Parameter-ness is one of them."""
    own = field_attributes(wrapper)
    return {k: v for k, v in vars(wrapper).items() if k not in own and not k.startswith("_l_")}


def deepcopy(wrapper: Any, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy``: the result owns its memory; inner tensors that two wrappers share stay shared in the copy.

    Raises:
        RuntimeError: for a tensor that is no leaf, as for plain tensors.
    """
    if id(wrapper) in memo:
        return memo[id(wrapper)]
    if not wrapper.is_leaf:
        raise RuntimeError(
            f"only leaves can be deep-copied, and this {type(wrapper).__name__} has a grad_fn; copy wrapper.detach()"
        )
    cls = type(wrapper)
    with torch.no_grad():
        values = [_copied(getattr(wrapper, f.name), memo) for f in cls.declaration.fields]
        result = cls._generated.make(cls, *values)
        cls.carry_bits(result)
    memo[id(wrapper)] = result
    result.requires_grad_(wrapper.requires_grad)
    if wrapper.grad is not None:
        result.grad = copy.deepcopy(wrapper.grad, memo)
    # Ours; those of users stay behind, as for plain tensors. Set, not registered: a frozen tensor has one, too.
    ours = [hook for hook in (gradient_hooks(wrapper) or {}).values() if isinstance(hook, GradientHook)]
    if ours:
        hooks: dict[int, Any] = OrderedDict()
        hooks.update({RemovableHandle(hooks).id: hook for hook in ours})
        set_gradient_hooks(result, hooks)
    own = {VIEW_SOURCE: vars(wrapper)[VIEW_SOURCE]} if VIEW_SOURCE in vars(wrapper) else {}
    vars(result).update(copy.deepcopy(extras(wrapper) | own, memo))
    return result


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a field, a run of tensors one by one. Cloned are a fake tensor, whose deep copy would have a mode
    of its own, and one of a kernel's layout, which has no storage to copy."""
    if type(value) is tuple:
        return tuple(_copied(each, memo) for each in value)
    if not (isinstance(value, torch.Tensor) and (isinstance(value, TRACERS) or value.is_mkldnn)):
        return copy.deepcopy(value, memo)
    if id(value) not in memo:
        memo[id(value)] = value.clone()
    return memo[id(value)]


def reduce(wrapper: Any, protocol: Any) -> Any:
    """``__reduce_ex__``: rebuilt by ``rebuild``, which is registered as a safe global for ``weights_only`` loading. A
    wrapper whose ``saved_form`` is another tensor is saved as that one."""
    form = wrapper.saved_form()
    if form is not wrapper:
        form = form.detach().requires_grad_(wrapper.requires_grad)
        vars(form).update(extras(wrapper))
        return form.__reduce_ex__(protocol)
    cls = type(wrapper)
    values = tuple(getattr(wrapper, f.name) for f in cls.declaration.fields)
    return rebuild, (cls, values, wrapper.requires_grad, extras(wrapper))


def rebuild(cls: Any, values: tuple[Any, ...], requires_grad: bool, attributes: dict[str, Any]) -> Any:
    """The inverse of ``reduce``."""
    result = cls._generated.make(cls, *values)
    cls.carry_bits(result)
    result.requires_grad_(requires_grad)
    vars(result).update(attributes)
    return result


def stable_hash(wrapper: Any) -> str:
    """A digest of class, code, context and inner metadata, equal across processes: part of the compile cache's key.

    Raises:
        InnerTensorError: a context value can't be pickled.
    """
    cls = type(wrapper)
    names, context = cls.__tensor_flatten__(wrapper)
    inner = [_inner_key(getattr(wrapper, name)) for name in names]
    outer = tuple(wrapper.shape), wrapper.requires_grad
    key = (cls.__module__, cls.__qualname__, fingerprint(cls), outer, names, context, inner)
    try:
        return hashlib.blake2b(pickle.dumps(key), digest_size=16).hexdigest()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InnerTensorError(
            f"the context of {cls.__name__} can't be pickled, which the compile cache asks for: {context!r} ({error}). "
            "Define the classes of its values at module level."
        ) from error


def _inner_key(tensor: Any) -> Any:
    return stable_hash(tensor) if is_wrapper(tensor) else cache_key(tensor)


def context_types(cls: Any) -> set[type]:
    """The classes of the user's that context values may be of: enums, dataclasses. Loading with ``weights_only`` has to
    know them."""
    found: set[type] = set()
    for field in cls.declaration.context:
        if not field.required:
            found.add(type(field.default))
    for klass in cls.__mro__:
        for name, annotation in inspect.get_annotations(klass).items():
            if any(f.name == name for f in cls.declaration.context):
                found |= classes_in(evaluate(klass, name, annotation) if isinstance(annotation, str) else annotation)
    return {t for t in found if t.__module__.partition(".")[0] not in ("builtins", "torch", "typing", "types")}


def classes_in(annotation: Any) -> set[type]:
    """The classes that an annotation names, at any depth: ``tuple[A | None, B]`` names A and B."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return {annotation}
    return {c for a in typing.get_args(annotation) for c in classes_in(a)}


torch.serialization.add_safe_globals([rebuild])
