"""Op coverage: matrix products, factories, bit casts, layouts; by keyword, and in each mode of autograd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from ..calls import REFUSALS, Call, Slot, X, compare, function, item, method, refused_by_step
from ..check import check
from ..outcome import MismatchError
from ..refusal import is_refusal
from ..schema_trial import share_memory
from ..subject import VALUED, Kind, Subject

aten = torch.ops.aten
INPUT, BIAS, RIGHT, BATCH, SQUARE = map(Slot, ("input", "bias", "right", "batch", "square"))

PRODUCTS = (
    function(F.linear, INPUT, X),
    function(F.linear, INPUT, X, BIAS),
    function(F.linear, BATCH, X, BIAS),
    function(torch.mm, X, RIGHT),
    function(torch.matmul, X, RIGHT),
    Call("input @ x.t()", lambda a, x: a @ x.t(), (INPUT, X), {}),
    Call("batch @ x.t()", lambda a, x: a @ x.t(), (BATCH, X), {}),
    Call("x @ x.t()", lambda x: x @ x.t(), (X,), {}),
    Call("x.t() @ bias", lambda x, b: x.t() @ b, (X, BIAS), {}),
    Call("x.unsqueeze(0).bmm(right.unsqueeze(0))", lambda x, r: x.unsqueeze(0).bmm(r.unsqueeze(0)), (X, RIGHT), {}),
    Call("torch.addmm(bias, input, x.t())", lambda b, a, x: torch.addmm(b, a, x.t()), (BIAS, INPUT, X), {}),
    function(torch.einsum, "oi,ni->no", X, INPUT),
)
KEYWORD_PRODUCTS = (
    function(F.linear, INPUT, X, bias=BIAS),
    function(F.linear, input=INPUT, weight=X, bias=BIAS),
    function(torch.mm, input=X, mat2=RIGHT),
    function(torch.addmm, X, SQUARE, X, beta=0.5, alpha=2.0),
    function(torch.addmm, input=X, mat1=SQUARE, mat2=X, alpha=2.0),
    function(torch.matmul, input=RIGHT, other=X),
)
BY_KEYWORD = (
    function(torch.narrow, input=X, dim=1, start=0, length=4),
    function(torch.select, input=X, dim=0, index=1),
    function(torch.split, X, split_size_or_sections=2, dim=0),
    function(torch.chunk, input=X, chunks=2, dim=1),
    function(torch.unbind, input=X, dim=1),
    function(torch.transpose, input=X, dim0=0, dim1=1),
    function(torch.reshape, input=X, shape=(8, 4)),
    function(torch.flatten, input=X, start_dim=0),
    function(torch.unsqueeze, input=X, dim=1),
    function(torch.add, input=X, other=X, alpha=2),
    function(torch.sub, X, other=1.5, alpha=2),
    function(torch.clamp, input=X, max=0.5),
    function(torch.full_like, input=X, fill_value=2.0, dtype=torch.float64),
    function(torch.amax, input=X, dim=1, keepdim=True),
    function(torch.cat, tensors=[X, X], dim=1),
    function(torch.flip, input=X, dims=[0]),
    function(aten.slice.Tensor, X, dim=1, end=4),
    function(aten.select.int, self=X, dim=1, index=2),
    function(aten.add.Tensor, self=X, other=X, alpha=3),
    function(aten.transpose.int, self=X, dim0=0, dim1=1),
)
IN_ANY_MODE = (
    *(item(1), item(slice(1, 3)), item([0, 2]), method("split", 2), method("chunk", 2), method("unbind")),
    *(method("view", 8, 4), method("reshape", 8, 4), method("flatten"), method("t"), method("narrow", 0, 1, 2)),
    *(method("detach"), method("clone"), method("contiguous"), method("expand", 2, 4, 8), method("movedim", 0, 1)),
    *(method("add", 1), method("mul", 2), method("softmax", 1), method("sum"), method("to", torch.float64)),
    *(function(F.linear, INPUT, X, BIAS), function(torch.matmul, RIGHT, X), function(F.layer_norm, X, (8,))),
    *(
        function(F.dropout, X, 0.5, False),
        function(torch.square, X),
        function(F.silu, X),
        function(torch.stack, [X, X]),
    ),
)
FACTORIES = (
    method("new_zeros", 2, 3),
    method("new_zeros", (2, 3), dtype=torch.float64),
    method("new_ones", (4, 8)),
    method("new_full", (2, 3), 7.0),
    method("new_tensor", [1.0, 2.0]),
    function(torch.zeros_like, X),
    function(torch.ones_like, X),
    function(torch.ones_like, X, dtype=torch.int64),
    function(torch.zeros_like, X, memory_format=torch.contiguous_format),
    function(torch.zeros_like, X, requires_grad=True),
    function(torch.full_like, X, 3.0),
    function(torch.full_like, X, 3, dtype=torch.int32),
)
UNSET_FACTORIES = (
    method("new_empty", 2, 3),
    method("new_empty", (4, 8), dtype=torch.float64, requires_grad=True),
    method("new_empty_strided", (2, 3), (1, 2)),
    method("new_zeros", 4, 8, device="meta"),
    function(torch.zeros_like, X, device="meta"),
    function(torch.empty_like, X),
    function(torch.empty_like, X, dtype=torch.float64),
    function(torch.empty_like, X, device="meta"),
    function(torch.rand_like, X),
    function(torch.randn_like, X, dtype=torch.float64),
    function(torch.randint_like, X, 5),
)
MODES: dict[str, tuple[Callable[[], Any], Callable[[], Any], bool]] = {  # how x is made, how calls run, requires_grad
    "with grad": (nullcontext, torch.enable_grad, True),
    "in no_grad": (nullcontext, torch.no_grad, True),
    "in inference_mode": (nullcontext, torch.inference_mode, False),
    "in inference_mode, x made there": (torch.inference_mode, torch.inference_mode, False),
    "in no_grad, x made in inference_mode": (torch.inference_mode, torch.no_grad, False),
}


def _others(subject: Subject) -> dict[str, Any]:
    shapes = {"input": (3, 8), "bias": (4,), "right": (8, 4), "batch": (2, 3, 8), "square": (4, 4)}
    return {name: subject.plain(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items(), 1)}


@check("views", "a fast product ignores the zero point, the bias or the scale", kinds=VALUED)
def products_use_the_values(subject: Subject) -> None:
    """``linear``, ``mm``, ``matmul``, ``bmm`` and ``einsum`` with an instance on either side give what they give on its
    values, with and without a bias."""
    plain = subject.plain(4, 8)
    compare(subject, PRODUCTS, subject.wrap(plain), subject.reference(plain), loosely=True, **_others(subject))


@check("views", "F.linear(x, w, bias=b) drops the bias; a call by keyword raises an IndexError", kinds=VALUED)
def products_take_keywords(subject: Subject) -> None:
    """Products whose operands and bias come by keyword are those by position."""
    plain, others = subject.plain(4, 8), _others(subject)
    compare(subject, KEYWORD_PRODUCTS, subject.wrap(plain), subject.reference(plain), loosely=True, **others)


@check("views", "a handler reads its arguments by position")
def calls_by_keyword_are_calls_by_position(subject: Subject) -> None:
    """Ops that are called with keywords, of functions and of overloads, do what they do by position."""
    plain = subject.plain(4, 8)
    compare(subject, BY_KEYWORD, subject.wrap(plain), subject.reference(plain), refusable=refused_by_step)


@check("views", "inference_mode breaks detach and views of wrappers; composite ops arrive whole there", kinds=VALUED)
def ops_work_in_every_grad_mode(subject: Subject) -> None:
    """Views, detach, composite ops and products with grad, under ``no_grad`` and in ``inference_mode``, on instances
    that were made inside and outside of it."""
    plain, others = subject.plain(4, 8), _others(subject)
    reference = subject.reference(plain)
    for name, (making, running, grad) in MODES.items():
        with making():
            x = subject.wrap(plain, grad=grad)
        with running():
            compare(subject, IN_ANY_MODE, x, reference, of=f"make(plain), {name}", loosely=True, **others)


@check("views", "new_zeros or zeros_like give another dtype, device or shape than was asked for")
def factories_give_what_is_asked_for(subject: Subject) -> None:
    """``new_*`` and ``*_like``: an instance or a plain tensor, but of the shape, dtype, device and ``requires_grad``
    that the call names, and with memory of its own."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    for call in (*FACTORIES, *UNSET_FACTORIES):
        if subject.kind is Kind.FAKE and "device=meta" in call.text:  # which C++ says for the claim of a fake
            continue
        expected = call({"x": reference})
        got = call.on({"x": x}, expected)
        if call in FACTORIES:
            subject.stored(call.text, got, expected)
        text = "shape {}, {}, {}, requires_grad={}"
        facts = [(tuple(each.shape), each.dtype, each.device, each.requires_grad) for each in (got, expected)]
        if facts[0] != facts[1]:
            raise MismatchError(call.text, text.format(*facts[1]), text.format(*facts[0]))
        if share_memory(got, x):
            raise MismatchError(call.text, "a tensor with memory of its own", "one that shares memory with x")


@check("views", "view(dtype) reads the payload, or fails on a transposed tensor")
def bit_casts_read_the_values(subject: Subject) -> None:
    """``x.view(dtype)`` gives the bits of the values that x stands for, of any layout, or raises an error that says
    why it can't."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    for name, taken in (("x", x), ("x.t()", x.t()), ("x[:, 4:]", x[:, 4:])):
        values = {"x": reference, "x.t()": reference.t(), "x[:, 4:]": reference[:, 4:]}[name]
        for dtype in (torch.int32, torch.uint8, torch.float64, torch.bfloat16, torch.float32):
            _bit_cast(subject, name, taken, values, dtype)


def _bit_cast(subject: Subject, name: str, x: Any, values: torch.Tensor, dtype: torch.dtype) -> None:
    text = f"{name}.view({dtype})"
    try:
        expected, possible = values.view(dtype), True
    except REFUSALS:
        expected, possible = values.contiguous().view(dtype), False
    try:
        got = method("view", dtype).on({"x": x}, expected)
    except MismatchError as error:
        cause = error.__cause__ or error
        unclear = possible and (subject.kind is Kind.TRANSPARENT or not is_refusal(cause, "dtype|view|bit"))
        if unclear or not isinstance(cause, REFUSALS):
            raise MismatchError(text, expected, cause) from cause
        return
    subject.same(text, got, expected)


@check("views", "a class over a sparse tensor is taken for a strided one", kinds=VALUED)
def special_layouts_are_refused_or_work(subject: Subject) -> None:
    """An instance over a sparse tensor works, or ``make`` refuses to build it: torch asks a wrapper for strides that
    such a tensor does not have."""
    plain = subject.plain(4, 8).relu()
    for name, convert in (("to_sparse", torch.Tensor.to_sparse), ("to_sparse_csr", torch.Tensor.to_sparse_csr)):
        call = f"make(plain.{name}())"
        try:
            x: Any = subject.make(convert(plain))
        except REFUSALS:
            continue
        try:
            got = {call: subject.values(x), f"{call} + itself": subject.values(x + x)}
            dense = {text: each if each.layout is torch.strided else each.to_dense() for text, each in got.items()}
        except Exception as error:
            raise MismatchError(call, "a refusal, or an instance that works", error) from error
        for text, factor in ((call, 1), (f"{call} + itself", 2)):
            subject.same(text, dense[text], plain * factor, loosely=True)
