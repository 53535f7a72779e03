"""Writes in place: they change the tensor itself, whatever the other operand is, and nothing but its values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional as F

from ..calls import OUT, REFUSALS, Call, Slot, X, Y, Z, assigned, function, item, method, on, refused_by_step
from ..check import check
from ..outcome import MismatchError
from ..schema_trial import operands
from ..subject import VALUED, Subject, addresses, context_of, inner_tensors

aten = torch.ops.aten
PLAIN, MASK, ROWS, SQUARE, WIDE = map(Slot, ("plain", "mask", "rows", "square", "wide"))

IN_PLACE = (
    method("add_", 1.5),
    method("__iadd__", Y),
    method("add_", Z, alpha=2),
    method("sub_", Y),
    method("mul_", 2),
    method("mul_", Y),
    method("div_", 4.0),
    method("neg_"),
    method("zero_"),
    method("fill_", 2.5),
    method("clamp_", -0.5, 0.5),
    method("copy_", Y),
    method("addcmul_", Y, Z, value=0.5),
    method("lerp_", Y, 0.25),
    method("masked_fill_", MASK, 9.0),
    method("index_copy_", 0, ROWS, Y),
    method("addmm_", SQUARE, Z),
    function(F.relu, X, inplace=True),
    assigned(0, 3.0),
    assigned((slice(None), 1), 3.0),
    assigned(slice(1, 3), 0.0),
    assigned(MASK, 4.0),
    assigned((slice(None), [0, 2]), 5.0),
)
OVERLAPPING = (
    method("add_", X),
    method("mul_", X),
    method("sub_", X),
    method("copy_", X),
    method("addcmul_", X, X),
    method("lerp_", X, 0.5),
    Call("x[0].copy_(x[1])", lambda x: x[0].copy_(x[1]), (X,), {}),
    Call("x[0].add_(x[1])", lambda x: x[0].add_(x[1]), (X,), {}),
    Call("x.copy_(x.flip(0))", lambda x: x.copy_(x.flip(0)), (X,), {}),
)
INTO_PLAIN = (
    on(PLAIN, "add_", X),
    on(PLAIN, "add_", X, alpha=2),
    on(PLAIN, "mul_", X),
    on(PLAIN, "copy_", X),
    on(PLAIN, "addcmul_", X, Y),
    on(PLAIN, "lerp_", X, 0.5),
    on(PLAIN, "addmm_", SQUARE, X),
    on(PLAIN, "index_copy_", 0, ROWS, X),
    function(aten._foreach_add_.List, [PLAIN], [X]),
    function(aten._foreach_copy_.default, [PLAIN], [X]),
    Call("plain[0] = x[0]", lambda plain, x: plain[0].copy_(x[0]), (PLAIN, X), {}),
)
OUT_ARGUMENTS = (
    function(torch.add, X, Y, out=OUT),
    function(torch.add, Z, Z, out=X),
    function(torch.mul, X, 2.0, out=OUT),
    function(torch.exp, Z, out=X),
    function(torch.clamp, X, -0.5, 0.5, out=OUT),
    function(torch.mm, SQUARE, X, out=OUT),
    function(torch.add, X, Y, out=PLAIN),
    function(torch.where, MASK, X, Y, out=PLAIN),
)
BY_KEYWORD = (
    method("add_", other=Y, alpha=2),
    method("sub_", Z, alpha=0.5),
    method("clamp_", max=0.5),
    method("addcmul_", tensor1=Y, tensor2=Z, value=0.5),
    method("lerp_", end=Y, weight=0.25),
    method("masked_fill_", mask=MASK, value=9.0),
    function(torch.add, input=Y, other=Z, alpha=2, out=X),
    function(aten.add_.Tensor, self=X, other=Y, alpha=3),
    function(aten.copy_.default, self=X, src=Z),
    function(aten._foreach_add_.List, self=[X], other=[Z], alpha=2),
)
COPIES = (
    method("copy_", Y),
    method("copy_", Z),
    method("copy_", Z, non_blocking=True),
    on(PLAIN, "copy_", X),
    Call("x.copy_(z.double())", lambda x, z: x.copy_(z.double()), (X, Z), {}),
    Call("x.copy_(z[0])", lambda x, z: x.copy_(z[0]), (X, Z), {}),
    Call("x.copy_(y[1])", lambda x, y: x.copy_(y[1]), (X, Y), {}),
    Call("plain.double().copy_(x)", lambda plain, x: plain.copy_(plain.double().copy_(x)), (PLAIN, X), {}),
    Call("x.t().copy_(y.t())", lambda x, y: x.t().copy_(y.t()), (X, Y), {}),
)
IMPOSSIBLE = (
    method("add_", WIDE),
    method("mul_", WIDE),
    method("copy_", WIDE),
    Call("x.add_(y[:3])", lambda x, y: x.add_(y[:3]), (X, Y), {}),
    Call("x.copy_(y[:, :4])", lambda x, y: x.copy_(y[:, :4]), (X, Y), {}),
    Call("x[0:1].expand(4, 8).add_(y)", lambda x, y: x[0:1].expand(4, 8).add_(y), (X, Y), {}),
    assigned(9, 1.0),
    assigned((slice(None), 9), 1.0),
    method("index_fill_", 0, torch.tensor([9]), 1.0),
)
VIEWS = (
    method("t"),
    item(slice(None, None, 2)),
    item(slice(None), slice(4, None)),
    item(slice(None), slice(None, None, 2)),
    method("view", 8, 4),
    method("diagonal"),
    item(2),
)


def _operands(subject: Subject) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """x, y and out are instances; z, plain and the rest are not."""
    instances, plains = operands(subject, "x", "y", "out")
    z, square = subject.plain(4, 8, seed=5), subject.plain(4, 4, seed=6)
    mask, rows = subject.plain(4, 8, seed=7) > 0, torch.tensor([2, 0, 3, 1], device=subject.device)
    others = {"z": z, "square": square, "mask": mask, "rows": rows, "plain": z * 2, "wide": subject.plain(2, 4, 8)}
    return instances | {name: each.clone() for name, each in others.items()}, plains | others


def _try_all(subject: Subject, calls: Iterable[Call], *, loosely: bool = True) -> None:
    """Each of them leaves all its operands as it leaves plain ones."""
    for call in calls:
        instances, plains = _operands(subject)
        call(plains)
        call.on(instances, plains["x"])
        for name, expected in plains.items():
            subject.stored(f"{call.text}; {name}", instances[name], expected, loosely=loosely)


@check("writes", "an in-place op changes a decoded copy, and the tensor stays as it was", kinds=VALUED)
def in_place_ops_change_the_tensor(subject: Subject) -> None:
    """Each in-place op, and each assignment to a part, leaves the values that it leaves in a plain tensor. An update
    that is computed into a temporary is lost without a word: the model does not train."""
    _try_all(subject, IN_PLACE)


@check("writes", "an operand that is the tensor itself, or a part of it, is read after it was written", kinds=VALUED)
def operands_may_overlap(subject: Subject) -> None:
    """``x.add_(x)`` and copies between rows of one tensor."""
    _try_all(subject, OVERLAPPING)


@check("writes", "plain.add_(w) recurses without end, or makes plain something else", kinds=VALUED)
def plain_tensors_take_instances(subject: Subject) -> None:
    """In-place ops on a plain tensor with an instance as the operand write the values into the plain tensor."""
    _try_all(subject, INTO_PLAIN)


@check("writes", "out= is computed, and not written", kinds=VALUED)
def out_arguments_are_written(subject: Subject) -> None:
    """``out=`` an instance, or a plain tensor beside operands that are instances."""
    _try_all(subject, OUT_ARGUMENTS)


@check("writes", "an in-place op drops what it is given by keyword", kinds=VALUED)
def writes_take_keywords(subject: Subject) -> None:
    """In-place ops and ``out=`` with operands and factors by keyword."""
    _try_all(subject, BY_KEYWORD)


@check("writes", "copy_ between an instance and a plain tensor fails, or copies the payload", kinds=VALUED)
def copies_work_in_all_mixes(subject: Subject) -> None:
    """``copy_`` from an instance or a plain tensor into an instance, and from an instance into a plain tensor: of
    another dtype, broadcast and transposed, too."""
    _try_all(subject, COPIES)


@check("writes", "the error of a copy_ that does not fit dumps whole tensors", kinds=VALUED)
def a_copy_that_does_not_fit_is_told_in_short(subject: Subject) -> None:
    """``copy_`` between shapes that do not fit raises, and the text names the sizes and prints no values."""
    given = {"x": subject.new(64, 64), "y": subject.new(63, 64), "plain": subject.plain(63, 64)}
    for call in (method("copy_", Y), method("copy_", PLAIN), on(PLAIN, "copy_", X)):
        where = f"{call.text}, of shapes (64, 64) and (63, 64)"
        try:
            call(given)
        except REFUSALS as error:
            told = str(error)
        else:
            raise MismatchError(where, "an error", "a copy")
        if "63" not in told or "64" not in told or len(told) > 1000:
            raise MismatchError(where, "a short error that names both sizes", f"{len(told)} characters: {told}")


@check("writes", "a write that can't be leaves the tensor half written, or with another shape", kinds=VALUED)
def impossible_writes_raise_and_change_nothing(subject: Subject) -> None:
    """What torch refuses (an operand that broadcasts to more than the tensor, an index out of range) is refused, and
    the values are what they were."""
    for call in IMPOSSIBLE:
        instances, plains = _operands(subject)
        before = subject.values(instances["x"]).clone()
        try:
            call(plains)
        except REFUSALS as error:
            expected = error
        else:
            continue
        try:
            got = call.on(instances, expected)
        except MismatchError as error:
            if not isinstance(error.__cause__, REFUSALS):
                raise
        else:
            raise MismatchError(call.text, expected, got)
        subject.same(f"{call.text}, which raises; x", instances["x"], before)


@check("writes", "a write to a transposed or strided view hits other elements", kinds=VALUED)
def non_contiguous_views_are_written(subject: Subject) -> None:
    """In-place ops on views of any stride change the elements of the source that the view shows, and no others."""
    for view in VIEWS:
        for name, argument in (("mul_", 2.0), ("zero_", None), ("add_", "ones"), ("copy_", "ones")):
            instances, plains = _operands(subject)
            wanted = view(plains)
            ones = torch.ones_like(wanted)
            given = [] if argument is None else [ones if argument == "ones" else argument]
            text = f"{view.text}.{name}({argument or ''})"
            getattr(wanted, name)(*given)
            try:
                piece = view.on(instances, "a view")
            except MismatchError as error:
                if refused_by_step(error):
                    continue
                raise
            getattr(piece, name)(*given)
            subject.stored(f"{text}; x", instances["x"], plains["x"])


@check("writes", "after an in-place update the tensor has lost its recipe: scales, granularity, dtype", kinds=VALUED)
def writes_keep_the_recipe(subject: Subject) -> None:
    """After a write the context of the instance, and shape and dtype of its inner tensors, are what they were:
    compiled code, and whoever rebuilds the tensor from new values, relies on them."""
    for call in IN_PLACE:
        instances, _ = _operands(subject)
        x = instances["x"]
        before = _recipe(x)
        call.on(instances)
        if (after := _recipe(x)) != before:
            raise MismatchError(f"{call.text}: context, shapes and dtypes of the inner tensors", before, after)


def _recipe(x: Any) -> Any:
    return type(x), context_of(x), [(tuple(each.shape), each.dtype, each.device) for each in inner_tensors(x)]


@check("writes", "in-place updates move the memory that a captured CUDA graph reads", kinds=VALUED)
def writes_keep_the_addresses(subject: Subject) -> None:
    """In-place ops and ``copy_`` write into the memory that the inner tensors have. A CUDA graph that was captured
    before goes on reading there."""
    for call in (*IN_PLACE, *COPIES):
        instances, _ = _operands(subject)
        before = addresses(instances["x"])
        call.on(instances)
        if addresses(instances["x"]) != before:
            raise MismatchError(f"{call.text}: addresses of the inner tensors", "those from before", "new memory")
