"""What a compiled backward is traced with where a forward returns a wrapper whose gradients are plain."""

from __future__ import annotations

from typing import Any

import torch

from .fields import map_inner
from .policy import Fallback, Gradients
from .private import TRACERS, OpOverload
from .schema import Kind
from .wrapper import WrapperTensor

aten = torch.ops.aten


class Tangent(WrapperTensor):
    """A plain gradient in a wrapper's place. AOTAutograd guesses that the gradient of an output is of its class, and
    takes no plain tensor there while it traces; when it runs, it asks ``from_plain_tangent`` to make one of these of
    the plain gradient that there always is. Whatever op it meets gives a plain tensor."""

    gradient: torch.Tensor

    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    def decode(self) -> torch.Tensor:
        return self.gradient

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> Tangent:
        return cls(values)


def _unflatten(cls: Any, inner: dict[str, Any], context: Any, outer_size: Any, outer_stride: Any) -> Any:
    """Compiled code that hands a gradient on as it came puts it together here: plain, as leaves take it."""
    values = inner["gradient"]
    return cls._generated.make(cls, values) if isinstance(values, TRACERS) else values


Tangent.__tensor_unflatten__ = classmethod(_unflatten)  # type: ignore[method-assign, assignment]


@Tangent.implements(Kind.VIEW)
def view(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Plain, too: a ``DecodedView`` would outlive the compiled code as a gradient."""
    return op(*(a.gradient if isinstance(a, Tangent) else a for a in args), **kwargs)


@Tangent.implements(aten.detach.default, aten.alias.default)
def same(op: OpOverload, self: Tangent) -> Any:
    return map_inner(self, op)
