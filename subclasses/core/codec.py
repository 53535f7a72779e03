"""Calls an author's ``decode`` and ``encode``, and checks what comes back: a wrong one would be wrong values later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch

from .errors import CodecError, UnwrittenError
from .fields import context_of, inner_tensors, same_structure


def decoded(wrapper: Any) -> torch.Tensor:
    """``wrapper.decode()``.

    Raises:
        CodecError: it is no tensor of the shape and dtype that the wrapper says it has.
    """
    values = wrapper.decode()
    if not isinstance(values, torch.Tensor):
        raise CodecError(type(wrapper), "decode", f"returned a {type(values).__name__}, not a tensor")
    if values.shape != wrapper.shape or values.dtype != wrapper.dtype:
        got, said = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (values, wrapper))
        raise CodecError(type(wrapper), "decode", f"returned {got}, and the wrapper says {said}")
    return values


def encoded(cls: Any, values: torch.Tensor, context: dict[str, Any]) -> Any:
    """``cls.encode(values, **context)``.

    Raises:
        CodecError: it is no instance of ``cls``.
    """
    wrapper = cls.encode(values, **context)
    if type(wrapper) is not cls:
        raise CodecError(cls, "encode", f"returned a {type(wrapper).__name__}")
    return wrapper


Self = TypeVar("Self", bound="Codec")


class Codec(torch.Tensor):
    """The part of ``WrapperTensor`` that turns values into inner tensors and back. Authors override ``decode`` and
    ``encode``: both, or neither."""

    declaration: ClassVar[Any]
    _own_names: ClassVar[frozenset[str]]

    @classmethod
    def encode(cls: type[Self], values: torch.Tensor, **context: Any) -> Self:
        """An instance that stands for ``values`` (plain, taking no part in autograd). The other half of ``decode``."""
        single = cls.declaration.single
        if single is None or not cls.can_encode():
            raise CodecError(cls, "encode", "is missing: nothing says how values become inner tensors")
        return cls(**{single.name: values}, **context)

    @classmethod
    def can_encode(cls) -> bool:
        """Whether the class says how values become inner tensors, or has one inner tensor that is the values."""
        return bool(cls._own_names & {"encode", "stage"}) or (
            cls.declaration.single is not None and "decode" not in cls._own_names
        )

    def decode(self) -> torch.Tensor:
        """The values that this instance stands for, one level of wrapping taken off; below autograd."""
        single = type(self).declaration.single
        if single is None:
            raise CodecError(type(self), "decode", "is missing: nothing says what several inner tensors stand for")
        inner: torch.Tensor = getattr(self, single.name)
        return inner

    def store(self, values: torch.Tensor) -> None:
        """Writes ``values`` (broadcast to the shape of this tensor) into the inner tensors, in place and with this
        instance's own context. Their addresses stay.

        Raises:
            UnwrittenError: ``values`` encode to inner tensors of other shapes; nothing was changed.
        """
        self.stage(values)()

    def stage(self, values: torch.Tensor) -> Callable[[], None]:
        """The two halves of ``store``: encodes and checks now; what is returned writes, and can't fail."""
        new = encoded(type(self), values.to(self.dtype).expand(self.shape), context_of(self))
        if not same_structure(self, new):
            op = torch.ops.aten.copy_.default
            raise UnwrittenError(op, type(self), "the new values encode to inner tensors of other shapes")
        pairs = list(zip(inner_tensors(self), inner_tensors(new), strict=True))

        def write() -> None:
            for target, source in pairs:
                target.copy_(source)

        return write
