"""What an instance holds: its inner tensors as a sequence, to read and to map; its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .declaration import Role
from .private import TRACERS, is_tracing

# A view that writes to the wrapper it was cut from, not to its own inner tensors, has (that wrapper, the view as a
# function of plain values) under this name.
VIEW_SOURCE = "_l_source"


def is_wrapper(value: Any) -> bool:
    """Whether ``value`` is an instance of a lamina type."""
    return hasattr(type(value), "declaration")


def is_layer(value: Any) -> bool:
    """Whether ``value`` is an instance of a lamina type around something else: one without values, as FakeLikeTensor,
    is what it stands for, a plain tensor to those around it."""
    return is_wrapper(value) and not getattr(type(value), "valueless", False)


def is_wrapper_class(cls: type) -> bool:
    """Whether ``cls`` is a lamina type: a subclass of ``WrapperTensor``, which declares nothing itself. It stands above
    the modules that ask, so they look for what it derives."""
    return hasattr(cls, "declaration")


def has_values(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor can be read: not while torch traces, on the meta device, or of a class that says
    ``valueless = True``, as FakeLikeTensor does."""
    if is_tracing() or isinstance(tensor, TRACERS) or getattr(type(tensor), "valueless", False):
        return False
    return not tensor.is_meta


def inner_tensors(wrapper: Any) -> Iterator[torch.Tensor]:
    """The inner tensors that are there, in flatten order."""
    for name in type(wrapper).__tensor_flatten__(wrapper)[0]:
        yield getattr(wrapper, name)


def leaf_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The innermost tensors, depth first: those that own storage. Of a plain tensor: itself.

    >>> import lamina
    >>> quantized = lamina.LoggingTensor(lamina.ScaledInt8Tensor.quantize(torch.ones(3, 2)))
    >>> [(leaf.dtype, tuple(leaf.shape)) for leaf in leaf_tensors(quantized)]
    [(torch.int8, (3, 2)), (torch.float32, (3, 1))]
    """
    if is_layer(tensor):
        for inner in inner_tensors(tensor):
            yield from leaf_tensors(inner)
    else:
        yield tensor


def map_inner(wrapper: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A new wrapper of the same class and context whose inner tensors are ``function`` of the old ones."""
    cls = type(wrapper)
    result = cls._generated.rewrap(cls, wrapper, *(_mapped(wrapper, f, function) for f in cls.declaration.inner))
    cls.carry_bits(result)
    return result


def _mapped(wrapper: Any, field: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    value = getattr(wrapper, field.name)
    if field.role is Role.RUN:
        return tuple(function(t) for t in value)
    return None if value is None else function(value)


def context_of(wrapper: Any) -> dict[str, Any]:
    """The context fields of ``wrapper`` by name."""
    return {f.name: getattr(wrapper, f.name) for f in type(wrapper).declaration.context}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in the arguments of a call, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


def field_attributes(wrapper: Any) -> list[str]:
    """The names under which the instance holds its fields; a run has one for each tensor, and one for their number."""
    cls = type(wrapper)
    names: list[str] = list(cls.__tensor_flatten__(wrapper)[0])
    names += [f"{f.name}_count" for f in cls.declaration.of(Role.RUN)]
    return names + [f.name for f in cls.declaration.of(Role.CONTEXT, Role.OPTIONAL) if f.name not in names]


def same_structure(a: Any, b: Any) -> bool:
    """Whether two wrappers agree in class, context and the shapes and dtypes of their inner tensors."""
    if type(a) is not type(b) or context_of(a) != context_of(b):
        return False
    mine, theirs = list(inner_tensors(a)), list(inner_tensors(b))
    return len(mine) == len(theirs) and all(
        m.shape == t.shape and m.dtype == t.dtype for m, t in zip(mine, theirs, strict=True)
    )
