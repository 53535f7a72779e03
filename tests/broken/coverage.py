"""Broken in products, factories, bit casts and modes."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled

from broken.aliases import ByHand
from lamina import LoggingTensor

aten = torch.ops.aten


class IgnoresScale(Doubled):
    """Its fast matrix product multiplies by the payload."""


@IgnoresScale.implements(aten.mm.default)
def mm_payload(op: Any, self: Any, mat2: Any) -> Any:
    return op(*(t.elem if isinstance(t, Doubled) else t for t in (self, mat2)))


class DropsBias(Clear):
    """Its linear takes a bias by position only."""


@DropsBias.implements_function(torch.nn.functional.linear)
def linear_positional(func: Any, *args: Any, **kwargs: Any) -> Any:
    args = args or (kwargs["input"], kwargs["weight"])
    return func(*args)


class ReadsPositions(Clear):
    """It reads ``alpha`` of an addition from the third position, where it never is."""


@ReadsPositions.implements(aten.add.Tensor)
def add_positional(op: Any, *args: Any, **kwargs: Any) -> Any:
    left, right = (t.elem if isinstance(t, Clear) else t for t in args[:2])
    return ReadsPositions(op(left, right, alpha=args[2] if len(args) > 2 else 1))


class KeepsDtype(LoggingTensor):
    """Its ``full_like`` does not look at ``dtype``."""


@KeepsDtype.implements(aten.full_like.default)
def full_like(op: Any, self: Any, fill_value: Any, **how: Any) -> Any:
    return KeepsDtype(op(self.elem, fill_value))


class CastsPayload(Doubled):
    """``view(dtype)`` reads the bits of the payload."""


@CastsPayload.implements(aten.view.dtype)
def view_payload(op: Any, self: Any, dtype: torch.dtype) -> Any:
    return op(self.elem, dtype).clone()


class WrapsSparse(ByHand):
    """It says that it is strided, over whatever it is given."""

    def to_plain(self) -> torch.Tensor:
        return self.elem.to_dense()

    @classmethod
    def strides_of(cls, elem: torch.Tensor) -> tuple[int, ...]:
        return torch.empty(elem.shape, device="meta").stride()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs) if func is not aten.add.Tensor else args[0]


BROKEN = {
    "products_use_the_values": (IgnoresScale, IgnoresScale.from_plain),
    "products_take_keywords": (DropsBias, DropsBias),
    "calls_by_keyword_are_calls_by_position": (ReadsPositions, ReadsPositions),
    "ops_work_in_every_grad_mode": (ByHand, ByHand),
    "factories_give_what_is_asked_for": (KeepsDtype, KeepsDtype),
    "bit_casts_read_the_values": (CastsPayload, CastsPayload.from_plain),
    "special_layouts_are_refused_or_work": (WrapsSparse, WrapsSparse),
}
