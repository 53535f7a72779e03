"""Broken in what they alias and what they write."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled

aten = torch.ops.aten


class WritesOperand(Clear):
    """``lerp_`` writes its second operand as well."""


@WritesOperand.implements(aten.lerp_.Scalar)
def lerp_both(op: Any, self: Any, end: Any, weight: Any) -> Any:
    op(self.elem, end.elem, weight)
    end.elem.copy_(self.elem)
    return self


class ByHand(torch.Tensor):
    """A wrapper of the kind that every tutorial shows: views have a storage of their own."""

    elem: torch.Tensor

    def __new__(cls, elem: torch.Tensor) -> ByHand:
        self: Any = torch.Tensor._make_wrapper_subclass(cls, elem.shape, cls.strides_of(elem), 0, dtype=elem.dtype)
        self.elem = elem
        return self  # type: ignore[no-any-return]

    @classmethod
    def strides_of(cls, elem: torch.Tensor) -> tuple[int, ...]:
        return elem.stride()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tree_map = torch.utils._pytree.tree_map
        unwrapped = tree_map(lambda t: t.elem if isinstance(t, cls) else t, (args, kwargs or {}))
        out = func(*unwrapped[0], **unwrapped[1])
        return tree_map(lambda t: cls(t) if type(t) is torch.Tensor else t, out)


class SharesOnClone(Clear):
    """``cat`` of one tensor is that tensor."""


@SharesOnClone.implements(aten.cat.default)
def cat_of_one(op: Any, tensors: Any, dim: int = 0) -> Any:
    if len(tensors) == 1:
        return SharesOnClone(tensors[0].elem.view_as(tensors[0].elem))
    return SharesOnClone(op([t.elem if isinstance(t, Clear) else t for t in tensors], dim))


class CopiesDiagonal(Clear):
    """``diagonal`` is a copy, under the storage of its source."""


@CopiesDiagonal.implements(aten.diagonal.default)
def diagonal_copy(op: Any, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return CopiesDiagonal(op(self.elem, offset, dim1, dim2).clone())


class CopiesByView(Clear):
    """A conversion shares memory where the dtype is the one it had."""


@CopiesByView.implements(aten._to_copy.default)
def to_view(op: Any, self: Any, *, dtype: torch.dtype | None = None, **how: Any) -> Any:
    return CopiesByView(self.elem.view_as(self.elem) if dtype in (None, self.dtype) else self.elem.to(dtype))


class LeaksPayload(Doubled):
    """``select`` returns what it finds in the inner tensor."""


@LeaksPayload.implements(aten.select.int)
def select_payload(op: Any, self: Any, dim: int, index: int) -> Any:
    return op(self.elem, dim, index).clone()


BROKEN = {
    "what_the_schema_says_is_written": (WritesOperand, WritesOperand),
    "what_the_schema_says_is_aliased": (ByHand, ByHand),
    "written_arguments_are_returned": (ByHand, ByHand),
    "what_the_schema_says_is_new": (SharesOnClone, SharesOnClone),
    "views_and_their_source_follow_each_other": (CopiesDiagonal, CopiesDiagonal),
    "copies_are_independent": (CopiesByView, CopiesByView),
    "no_op_hands_out_an_inner_tensor": (LeaksPayload, LeaksPayload.from_plain),
}
