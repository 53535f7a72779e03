"""What torch.compile asks of a wrapper beyond the flatten protocol."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from . import copying
from .fields import is_wrapper, is_wrapper_class, map_inner
from .policy import Fallback, Gradients
from .private import accept_plain_tangents, never_compile


def from_plain_tangent(values: torch.Tensor, context: Any, expected_type: Any = None) -> Any:
    """A plain tangent as the wrapper with which a compiled backward was traced; None where that can lose something.

    Autograd hands plain zeros to an output that the backward does not come by.
    """
    single = expected_type.declaration.single if is_wrapper_class(expected_type) else None
    if single is None:
        return None
    inner = {single.name: values}
    return expected_type._generated.unflatten(expected_type, inner, context, values.size(), values.stride())


accept_plain_tangents(from_plain_tangent)
never_compile(from_plain_tangent)


def _tangent_of(wrapper: Any) -> Any:
    return wrapper.__coerce_tangent_metadata__()


class Compilable(torch.Tensor):
    """The part of ``WrapperTensor`` that AOTAutograd calls."""

    fallback: ClassVar[Any]
    gradients: ClassVar[Any]
    declaration: ClassVar[Any]
    to_plain: Any
    __tensor_flatten__: Any
    __tensor_unflatten__: Any

    def _stable_hash_for_caching(self) -> str:
        return copying.stable_hash(self)

    def __coerce_tangent_metadata__(self) -> Any:
        """What stands for the gradient of an output like this one while a backward is traced."""
        single = type(self).declaration.single
        if type(self).gradients is Gradients.SAME:  # and below it, the gradient of what it holds
            holds_wrapper = single is not None and is_wrapper(getattr(self, single.name))
            return map_inner(self, _tangent_of) if holds_wrapper else self
        from .tangent import Tangent  # a wrapper class itself, so it stands above this module

        return Tangent._generated.make(Tangent, self.to_plain())

    def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
        """A compiled backward was traced with another tangent: what can be had of it without loss, or None."""
        if expected_type is torch.Tensor:
            return self.to_plain()
        if expected_type is None and type(self).fallback is Fallback.UNWRAP:
            inner = {name: getattr(self, name) for name in self.__tensor_flatten__()[0]}
            return type(self).__tensor_unflatten__(inner, context, self.size(), self.stride())
        return None


never_compile(Compilable.__coerce_same_metadata_as_tangent__)
