"""Broken in what they write in place."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled

aten = torch.ops.aten


def elem_of(value: Any) -> Any:
    return value.elem if isinstance(value, Clear) else value


class WritesTemporary(Clear):
    """``add_`` adds to a copy."""


@WritesTemporary.implements(aten.add_.Tensor)
def add_lost(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    op(elem_of(self).clone(), elem_of(other), alpha=alpha)
    return self


class ReadsAfterWriting(Clear):
    """``mul_`` writes zeros first, and then reads its operand."""


@ReadsAfterWriting.implements(aten.mul_.Tensor)
def mul_late(op: Any, self: Any, other: Any) -> Any:
    values = elem_of(self).clone()
    elem_of(self).zero_()
    elem_of(self).copy_(values * elem_of(other))
    return self


class MissesPlain(Clear):
    """It takes whatever is written for one of its own: a plain tensor is written to in a copy."""


@MissesPlain.implements(aten.addcmul_.default)
def addcmul_own(op: Any, self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    target = self.elem if isinstance(self, Clear) else self.clone()
    op(target, elem_of(tensor1), elem_of(tensor2), value=value)
    return self


class DropsOut(Clear):
    """Its ``exp`` with ``out=`` returns a result, and writes none."""


@DropsOut.implements(aten.exp.out)
def exp_out(op: Any, self: Any, *, out: Any) -> Any:
    return out


class DropsAlpha(Clear):
    """Its ``sub_`` ignores the factor, a keyword."""


@DropsAlpha.implements(aten.sub_.Tensor)
def sub_plainly(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    op(elem_of(self), elem_of(other))
    return self


class CopiesPayload(Doubled):
    """``plain.copy_(w)`` copies what is in memory, not what it stands for."""


@CopiesPayload.implements(aten.copy_.default)
def copy_payload(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if isinstance(self, Doubled):
        return CopiesPayload.super_rule(op)(self, src, non_blocking)
    return op(self, src.elem, non_blocking)


class DumpsValues(Clear):
    """The error of its ``copy_`` prints both tensors."""


@DumpsValues.implements(aten.copy_.default)
def copy_dumping(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    target, source = elem_of(self), elem_of(src)
    if target.shape != source.shape and source.dim() == 2:
        raise ValueError(f"{target.shape} {source.shape} differ: {target.tolist()} and {source.tolist()}")
    op(target, source, non_blocking)
    return self


class Grows(Clear):
    """``mul_`` with an operand that broadcasts to more writes what fits."""


@Grows.implements(aten.mul_.Tensor)
def mul_what_fits(op: Any, self: Any, other: Any) -> Any:
    factor = elem_of(other)
    op(elem_of(self), factor[0] if isinstance(factor, torch.Tensor) and factor.dim() == 3 else factor)
    return self


class ZeroesMemory(Clear):
    """``zero_`` on a strided view writes all that lies between its elements."""


@ZeroesMemory.implements(aten.zero_.default)
def zero_between(op: Any, self: Any) -> Any:
    elem = self.elem
    length = sum((size - 1) * stride for size, stride in zip(elem.shape, elem.stride(), strict=True)) + 1
    op(elem.as_strided((length,), (1,)))
    return self


class ForgetsTag(Clear):
    """Each division makes it one that counts as written."""

    tag: int = 0


@ForgetsTag.implements(aten.div_.Tensor)
def div_tagged(op: Any, self: Any, other: Any) -> Any:
    op(self.elem, elem_of(other))
    self.tag = 1
    return self


class NewMemory(Clear):
    """``neg_`` puts a new inner tensor in the place of the old one."""


@NewMemory.implements(aten.neg_.default)
def neg_anew(op: Any, self: Any) -> Any:
    self.elem = self.elem.neg()
    return self


BROKEN = {
    "in_place_ops_change_the_tensor": (WritesTemporary, WritesTemporary),
    "operands_may_overlap": (ReadsAfterWriting, ReadsAfterWriting),
    "plain_tensors_take_instances": (MissesPlain, MissesPlain),
    "out_arguments_are_written": (DropsOut, DropsOut),
    "writes_take_keywords": (DropsAlpha, DropsAlpha),
    "copies_work_in_all_mixes": (CopiesPayload, CopiesPayload.from_plain),
    "a_copy_that_does_not_fit_is_told_in_short": (DumpsValues, DumpsValues),
    "impossible_writes_raise_and_change_nothing": (Grows, Grows),
    "non_contiguous_views_are_written": (ZeroesMemory, ZeroesMemory),
    "writes_keep_the_recipe": (ForgetsTag, ForgetsTag),
    "writes_keep_the_addresses": (NewMemory, NewMemory),
}
