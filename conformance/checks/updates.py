"""Writes in place, further: merges into a weight, changes of shape, random fills, modes of autograd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..calls import Call, Slot, X, Y, assigned, function, method
from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..refusal import is_refusal
from ..schema_trial import operands
from ..subject import VALUED, Kind, Subject, context_of

DELTA = Slot("delta")
# A refused merge has to name one of these, or its author has no way to go on.
_WAY_OUT = r"requantize|dequantize|to_plain|copy_|swap_tensors"


def _add_to_data(x: Any, delta: torch.Tensor) -> None:
    x.data += delta


MERGES = (
    method("add_", DELTA),
    Call("x += b @ a", lambda x, delta: x.add_(delta[:, :2] @ delta[:2]), (X, DELTA), {}),
    Call("x.data += delta", _add_to_data, (X, DELTA), {}),
    Call("x.data.copy_(x + delta)", lambda x, delta: x.data.copy_(x + delta), (X, DELTA), {}),
    Call("x.data.mul_(2)", lambda x: x.data.mul_(2), (X,), {}),
    Call("x[1:3].add_(delta[1:3])", lambda x, delta: x[1:3].add_(delta[1:3]), (X, DELTA), {}),
)
RESHAPES = (
    method("t_"),
    method("transpose_", 0, 1),
    method("swapaxes_", 0, 1),
    method("unsqueeze_", 0),
    method("unsqueeze_", -1),
    method("squeeze_"),
    method("resize_", 8, 4),
    method("resize_", 4, 8),
    method("as_strided_", (4, 8), (8, 1)),
)
FILLS = (
    method("normal_", 0.5, 2.0),
    method("uniform_", -1, 2),
    method("bernoulli_", 0.5),
    method("exponential_"),
    method("random_", 0, 9),
    function(nn.init.kaiming_uniform_, X),
    function(nn.init.constant_, X, 0.5),
    function(F.dropout, X, 0.5, True, inplace=True),
)
IN_ANY_MODE = (
    method("add_", 1.0),
    method("mul_", Y),
    method("copy_", Y),
    method("zero_"),
    method("lerp_", Y, 0.5),
    function(F.relu, X, inplace=True),
    assigned(1, 2.0),
    Call("x.view(-1).mul_(2)", lambda x: x.view(-1).mul_(2), (X,), {}),
    Call("x.detach().add_(1)", lambda x: x.detach().add_(1), (X,), {}),
    Call("x.chunk(2)[1].fill_(1)", lambda x: x.chunk(2)[1].fill_(1), (X,), {}),
)
MODES: dict[str, tuple[Callable[[], Any], Callable[[], Any], bool]] = {  # how x is made, how calls run, requires_grad
    "with grad, x needing none": (nullcontext, torch.enable_grad, False),
    "in no_grad, x requiring grad": (nullcontext, torch.no_grad, True),
    "in inference_mode": (nullcontext, torch.inference_mode, False),
    "in inference_mode, x made there": (torch.inference_mode, torch.inference_mode, False),
}


def _updated(subject: Subject, call: Call, x: Any, expected: torch.Tensor, text: str, **others: Any) -> None:
    torch.manual_seed(3)
    call({"x": expected, **others})
    torch.manual_seed(3)
    call.on({"x": x, **others}, expected)
    subject.stored(text, x, expected, loosely=True)


@check("writes", "w.add_(delta) and w.data += delta on a quantized weight raise, or merge nothing", kinds=VALUED)
def merges_go_in(subject: Subject) -> None:
    """The ways in which an update of a weight is merged into it: the values arrive, by the tensor's own recipe; or the
    error names the call that does it."""
    delta = subject.plain(4, 8, seed=8)
    for call in MERGES:
        plain = subject.plain(4, 8)
        x = nn.Parameter(subject.wrap(plain), requires_grad=False)
        expected = subject.values(x).clone()
        try:
            _updated(subject, call, x, expected, f"w = Parameter(x); {call.text}", delta=delta)
        except MismatchError as error:
            if error.__cause__ is None or not is_refusal(error.__cause__, _WAY_OUT):
                raise


@check("writes", "a quantized tensor can't be made again from new values: its recipe is lost", kinds=VALUED)
def an_instance_is_rebuilt_from_new_values(subject: Subject) -> None:
    """``w.requantize(values)``, if the class has it, is an instance that stands for the values, with the context of
    ``w``, in memory of its own."""
    x, values = subject.new(4, 8), subject.plain(4, 8, seed=9)
    rebuild = getattr(x, "requantize", None)
    if rebuild is None:
        raise NotApplicable(f"{subject.cls.__name__} has no requantize()")
    before, new = subject.values(x).clone(), rebuild(values)
    if not subject.is_instance(new):
        raise MismatchError("x.requantize(values)", f"a {subject.cls.__name__}", new)
    subject.stored("x.requantize(values)", new, values)
    if context_of(new) != context_of(x):
        raise MismatchError("x.requantize(values): its context", context_of(x), context_of(new))
    new.zero_()
    subject.same("x.requantize(values).zero_(); x", x, before)


@check("writes", "t_ or unsqueeze_ change the inner tensor, and the wrapper reports the old shape", kinds=VALUED)
def changes_of_shape_are_reported(subject: Subject) -> None:
    """After an op that changes the shape in place the tensor has that shape, and those values, and can be written. A
    class may refuse where its values are no memory that could take another shape."""
    for call in RESHAPES:
        x, expected = subject.new(4, 8), subject.reference(subject.plain(4, 8))
        before = expected.clone()
        call({"x": expected})
        try:
            call.on({"x": x}, expected)
        except MismatchError as error:
            hard = subject.kind is Kind.REPRESENTATION or "resize" in call.text or "as_strided" in call.text
            if not hard or error.__cause__ is None or not is_refusal(error.__cause__, "shape|stride|resize"):
                raise
            subject.same(f"{call.text}, which raises; x", x, before)
            continue
        subject.same(f"{call.text}; x", x, expected)
        if subject.kind is Kind.TRANSPARENT and x.stride() != expected.stride():
            raise MismatchError(f"{call.text}; x.stride()", expected.stride(), x.stride())
        subject.stored(f"{call.text}; x.mul_(2)", x.mul_(2), expected.mul_(2))


@check("writes", "initialization fills a copy: the weight keeps its old values", kinds=VALUED)
def random_fills_go_in(subject: Subject) -> None:
    """``normal_``, ``uniform_``, ``nn.init`` and in-place dropout write what they write into a plain tensor, from the
    same seed."""
    for call in FILLS:
        expected = subject.reference(subject.plain(4, 8))
        with torch.no_grad():
            _updated(subject, call, subject.new(4, 8), expected, f"torch.manual_seed(3); {call.text}; x")


@check("writes", "in-place ops work with grad only, or in no_grad only", kinds=VALUED)
def writes_work_in_every_grad_mode(subject: Subject) -> None:
    """In-place ops with grad, under ``no_grad`` on a leaf that requires grad, and in ``inference_mode`` on instances
    that were made inside and outside of it. A leaf that requires grad is not written with grad."""
    for name, (making, running, grad) in MODES.items():
        for call in IN_ANY_MODE:
            plain = subject.plain(4, 8)
            with making():
                x = subject.wrap(plain, grad=grad)
                other = subject.plain(4, 8, seed=2)
            with running():
                expected = subject.values(x).clone()
                _updated(subject, call, x, expected, f"{call.text} {name}; x", y=other)
    leaf = subject.new(4, 8, grad=True)
    try:
        leaf.add_(1)
    except RuntimeError:
        return
    raise MismatchError("x.requires_grad_().add_(1)", "a RuntimeError: x is a leaf that requires grad", "a write")


@check("writes", "in-place ops on what an op returned do not reach the gradient", kinds=VALUED)
def writes_take_part_in_autograd(subject: Subject) -> None:
    """An in-place op on a result, with a graph: values and gradients are those of plain tensors."""
    (instances, plains), gradients = operands(subject, "x", "y"), []
    for given in (plains, instances):
        leaf = given["x"].detach().requires_grad_()
        middle = leaf * 1.5
        middle.mul_(2).add_(given["y"])
        middle[1].neg_()
        gradients.append(torch.autograd.grad(middle.sum(), leaf)[0])
        given["result"] = middle.detach()
    text = "m = x * 1.5; m.mul_(2).add_(y); m[1].neg_()"
    subject.stored(text, instances["result"], plains["result"], loosely=True)
    subject.stored(f"{text}; the gradient of m.sum()", gradients[1], gradients[0], loosely=True)
