"""Aliasing and mutation, as the schemas of operators have them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..calls import OUT, Call, X, Y, Z, compare, function, item, method
from ..check import check
from ..outcome import MismatchError
from ..schema_trial import obeys_schema, operands, share_memory
from ..subject import VALUED, Kind, Subject, leaves_of

aten = torch.ops.aten
ROWS, PLACES = torch.tensor([3, 1, 0, 0]), torch.tensor([[0, 2], [7, 1]])

IN_PLACE = (
    function(aten.add_.Tensor, X, Y),
    function(aten.add_.Tensor, X, Z, alpha=2),
    function(aten.add_.Tensor, X, X),
    function(aten.add_.Scalar, X, 1.5),
    function(aten.sub_.Tensor, X, Z),
    function(aten.mul_.Tensor, X, Y),
    function(aten.mul_.Scalar, X, 2.0),
    function(aten.div_.Scalar, X, 2.0),
    function(aten.neg_.default, X),
    function(aten.abs_.default, X),
    function(aten.exp_.default, X),
    function(aten.relu_.default, X),
    function(aten.sigmoid_.default, X),
    function(aten.zero_.default, X),
    function(aten.fill_.Scalar, X, 2.5),
    function(aten.clamp_.default, X, -0.5, 0.5),
    function(aten.copy_.default, X, Y),
    function(aten.copy_.default, X, Z),
    function(aten.addcmul_.default, X, Y, Z, value=0.5),
    function(aten.lerp_.Scalar, X, Y, 0.25),
    function(aten.tril_.default, X),
    function(aten.cumsum_.default, X, 1),
    function(aten.index_fill_.int_Scalar, X, 0, ROWS, 2.0),
    function(aten.index_add_.default, X, 0, ROWS, Y),
    function(aten.index_put_.default, X, [ROWS], torch.tensor(4.0)),
    function(aten.scatter_.value, X, 1, PLACES, 5.0),
)
OUT_ARGUMENTS = (
    function(aten.add.out, X, Y, out=OUT),
    function(aten.mul.out, X, Z, out=OUT),
    function(aten.exp.out, X, out=OUT),
    function(aten.clamp.out, X, -0.5, 0.5, out=OUT),
    function(aten.cat.out, [X], out=OUT),
    function(aten.tril.out, X, out=OUT),
)
LISTS = (
    function(aten._foreach_add_.List, [X, Y], [Z, Z]),
    function(aten._foreach_mul_.Scalar, [X, Y], 2.0),
    function(aten._foreach_lerp_.Scalar, [X, Z], [Y, Y], 0.25),
    function(aten._foreach_addcmul_.Scalar, [X], [Y], [Z], 0.5),
    function(aten._foreach_copy_.default, [X, Z], [Y, Y]),
    function(aten._foreach_zero_.default, [X, Y]),
    function(aten._foreach_neg_.default, [X, Z]),
)
NEW = (
    *(function(getattr(aten, name).default, X) for name in "neg abs exp relu sigmoid tanh clone isnan argmax".split()),
    function(aten.add.Tensor, X, Y),
    function(aten.sub.Tensor, X, Z),
    function(aten.mul.Tensor, Z, X),
    function(aten.div.Tensor, X, Y),
    function(aten.maximum.default, X, Y),
    function(aten.eq.Tensor, X, Y),
    function(aten.lt.Scalar, X, 0.5),
    function(aten.pow.Tensor_Scalar, X, 2),
    function(aten.clamp.default, X, -0.5),
    function(aten.where.self, torch.ones(4, 8, dtype=torch.bool), X, Y),
    function(aten.addcmul.default, X, Y, Z),
    function(aten.lerp.Scalar, X, Y, 0.5),
    function(aten.sum.default, X),
    function(aten.mean.dim, X, [1], True),
    function(aten.amax.default, X, [0]),
    function(aten._softmax.default, X, 1, False),
    function(aten.native_layer_norm.default, X, [8], None, None, 1e-5),
    function(aten.var.correction, X, [1]),
    function(aten.cumsum.default, X, 0),
    function(aten.sort.default, X),
    function(aten.topk.default, X, 2),
    function(aten.flip.default, X, [0]),
    function(aten.roll.default, X, [1], [0]),
    function(aten.tril.default, X),
    function(aten.repeat.default, X, [1, 1]),
    function(aten.constant_pad_nd.default, X, [0, 0]),
    function(aten.cat.default, [X, Y]),
    function(aten.cat.default, [X]),
    function(aten.stack.default, [X, Z]),
    function(aten.index.Tensor, X, [ROWS]),
    function(aten.index_select.default, X, 0, ROWS),
    function(aten.gather.default, X, 1, PLACES),
    function(aten.embedding.default, X, ROWS),
    function(aten.masked_fill.Scalar, X, torch.zeros(4, 8, dtype=torch.bool), 9.0),
    function(aten.scatter.value, X, 1, PLACES, 5.0),
    function(aten._to_copy.default, X),
    function(aten._to_copy.default, X, dtype=torch.float64),
    function(aten.zeros_like.default, X),
    function(aten.new_ones.default, X, [4, 8]),
    function(aten.view_copy.default, X, [8, 4]),
    function(aten._foreach_add.List, [X, Y], [Z, X]),
    function(aten._foreach_mul.Scalar, [X, Z], 1.0),
)
VIEWS = (
    function(aten.alias.default, X),
    function(aten.detach.default, X),
    function(aten.view.default, X, [8, 4]),
    function(aten.view.default, X, [4, 8]),
    function(aten.permute.default, X, [1, 0]),
    function(aten.t.default, X),
    function(aten.transpose.int, X, 0, 1),
    function(aten.unsqueeze.default, X, 0),
    function(aten.squeeze.default, X),
    function(aten.expand.default, X, [2, 4, 8]),
    function(aten.slice.Tensor, X, 0, 1, 3),
    function(aten.slice.Tensor, X, 1, 0, 4),
    function(aten.select.int, X, 0, 1),
    function(aten.select.int, X, 1, 2),
    function(aten.split.Tensor, X, 2),
    function(aten.split_with_sizes.default, X, [1, 3]),
    function(aten.unbind.int, X, 1),
    function(aten.as_strided.default, X, [4, 8], [8, 1]),
    function(aten.diagonal.default, X),
    function(aten.unfold.default, X, 0, 2, 1),
)
# Views that every element is in once, and can be written.
WRITABLE = (
    method("detach"),
    Call("x.data", lambda x: x.data, (X,), {}),
    item(1),
    item(slice(None), 2),
    item(slice(1, 3)),
    item(..., slice(4, None)),
    method("view", -1),
    method("reshape", 8, 4),
    method("flatten"),
    method("t"),
    method("permute", 1, 0),
    method("unsqueeze", 1),
    method("squeeze"),
    method("narrow", 0, 2, 2),
    method("select", 0, 3),
    method("diagonal"),
    method("view_as", Y),
)


@check("views", "an op writes to an argument that it only reads, or into a copy", kinds=VALUED)
def what_the_schema_says_is_written(subject: Subject) -> None:
    """In-place ops, ``out=`` and foreach ops write the arguments that their schema marks, and no other."""
    _obey(subject, (*IN_PLACE, *OUT_ARGUMENTS, *LISTS))


@check("views", "x += 1 binds another object, or another wrapper of it", kinds=VALUED)
def written_arguments_are_returned(subject: Subject) -> None:
    """In-place ops and ``out=`` return the argument itself, the same object. In inference mode, where nothing is above
    the class, torch passes on whatever the class returns."""
    with torch.inference_mode():
        _obey(subject, (*IN_PLACE, *OUT_ARGUMENTS))


def _obey(subject: Subject, calls: Iterable[Call]) -> None:
    for call in calls:
        instances, plains = operands(subject, "x", "y", "z", "out")
        instances["z"] = plains["z"].clone()
        obeys_schema(subject, call, instances, plains)


@check("views", "views do not share the storage of the wrapper: alias analysis misses a mutation")
def what_the_schema_says_is_aliased(subject: Subject) -> None:
    """A view shares storage with the wrapper that it was taken of, as torch's own analysis of aliases sees it. Without
    that a compiler takes the two for independent."""
    for call in VIEWS:
        instances, plains = operands(subject, "x")
        obeys_schema(subject, call, instances, plains)


@check("views", "a new tensor shares memory with an argument", kinds=VALUED)
def what_the_schema_says_is_new(subject: Subject) -> None:
    """What an op returns, where its schema names no alias, shares memory with no argument: neither the wrapper's
    storage nor an inner tensor. Else a write to it changes the argument, too."""
    _obey(subject, NEW)


@check("views", "what is written to a view of a wrapper is lost", kinds=VALUED)
def views_and_their_source_follow_each_other(subject: Subject) -> None:
    """A write through a view is seen in the wrapper, a later write to the wrapper in the view. Weight loaders fill
    parameters piece by piece, through views."""
    for call in WRITABLE:
        instances, plains = operands(subject, "x", "y")
        x, expected = instances["x"], plains["x"]
        call(plains).fill_(3.0)
        view = call.on(instances, "a view")
        view.fill_(3.0)
        subject.stored(f"{call.text}.fill_(3.0)", x, expected)
        x.mul_(2)
        text = f"v = {call.text}; x.mul_(2); v"
        subject.same(text, view, call({"x": subject.values(x), "y": plains["y"]}))


@check("views", "a copy is a view of the tensor that was copied", kinds=VALUED)
def copies_are_independent(subject: Subject) -> None:
    """``clone``, conversions and ``contiguous`` of what is not contiguous give tensors of their own: a write to one is
    not seen in the other."""
    copies = (
        method("clone"),
        method("to", torch.float64),
        method("to", torch.float32, copy=True),
        method("double"),
        method("repeat", 1, 1),
        item([0, 1, 2, 3]),
        Call("x.t().contiguous()", lambda x: x.t().contiguous(), (X,), {}),
        Call("x.t().reshape(-1)", lambda x: x.t().reshape(-1), (X,), {}),
    )
    for call in copies:
        x = subject.new(4, 8)
        before = subject.values(x).clone()
        copy = call.on({"x": x}, "a copy")
        if share_memory(copy, x):
            raise MismatchError(call.text, "a tensor with memory of its own", "one that shares memory with x")
        copy.fill_(3.0)
        subject.same(f"{call.text}.fill_(3.0); x", x, before)


@check("views", "select leaks the raw payload as values")
def no_op_hands_out_an_inner_tensor(subject: Subject) -> None:
    """Whatever picks or passes on elements gives an instance, or values: never the payload, and never the inner tensor
    itself, which the caller would then change."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    inner = {id(each) for each in leaves_of(x) if each is not x}
    calls = (
        *(item(1), item(1, 2), item(..., 0), method("select", 1, 3), method("unbind"), method("diagonal")),
        *(method("max"), method("min", 1), method("detach"), method("contiguous"), method("float"), method("cpu")),
        *(
            method("to", torch.float32),
            method("clone"),
            method("view", 4, 8),
            method("reshape", 4, 8),
            method("flatten"),
        ),
        Call("x.data", lambda x: x.data, (X,), {}),
    )
    compare(subject, calls, x, reference)
    for call in calls:
        if id(call({"x": x})) in inner:
            raise MismatchError(call.text, f"a {subject.cls.__name__}, or a plain copy", "the inner tensor itself")
    if subject.kind is not Kind.FAKE:
        compare(subject, [method("item")], x[1, 2], reference[1, 2], of="x[1, 2]")
