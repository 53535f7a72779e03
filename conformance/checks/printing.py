"""How an instance shows itself: repr, format strings, numpy, Python numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import forward_ad

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Kind, Subject, inner_tensors, leaves_of

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
REFUSALS = (TypeError, RuntimeError, ValueError)  # NotImplementedError is a RuntimeError


@check("printing", "repr recurses, raises or prints all values")
def repr_is_short(subject: Subject) -> None:
    """``repr`` names the class and is no longer than a few lines, whatever the size of the tensor."""
    for shape in ((), (0,), (3,), (64, 64)):
        plain = subject.plain(*shape)
        if not subject.takes(plain):
            continue
        text = repr(subject.wrap(plain))
        if subject.cls.__name__ not in text or len(text) > 4000:
            raise MismatchError(
                f"repr(instance of shape {shape})", f"a short text that names {subject.cls.__name__}", text
            )


def _reprs(subject: Subject) -> Iterator[tuple[str, str, Any, str]]:
    leaf = subject.new(4, 8, grad=True)
    yield "repr(x.requires_grad_())", "requires_grad", leaf, repr(leaf)
    parameter = torch.nn.Parameter(subject.new(4, 8))
    yield "repr(nn.Parameter(x))", "Parameter", parameter, repr(parameter)
    result = leaf.t()
    yield "repr(x.requires_grad_().t())", "grad_fn", result, repr(result)


@check("printing", "repr loses Parameter-ness, requires_grad and grad_fn")
def repr_tells_of_autograd(subject: Subject) -> None:
    """``repr`` says that a tensor is a Parameter, requires grad or has a ``grad_fn``, as that of a plain tensor does:
    it is what one prints to find out why nothing is trained."""
    for call, word, tensor, text in _reprs(subject):
        if subject.is_instance(tensor) and word not in text:
            raise MismatchError(call, f"a text with {word!r} in it", text)


@check("printing", "repr loses the tangent of a dual tensor", kinds=VALUED)
def repr_tells_of_the_tangent(subject: Subject) -> None:
    """``repr`` of a dual tensor shows that it has a tangent, as that of a plain one does."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(subject.new(4, 8), subject.new(4, 8, seed=1))
        text = repr(dual)
    if subject.is_instance(dual) and "tangent" not in text:
        raise MismatchError("repr(forward_ad.make_dual(x, tangent))", "a text with 'tangent' in it", text)


@check("printing", "print() inside no_grad, inference mode or compiled code raises", seconds=120)
def repr_works_in_every_scope(subject: Subject) -> None:
    """``repr`` and ``str`` are the same text, in ``no_grad``, ``inference_mode`` and between the graphs of a compiled
    function as well. One prints where something is wrong, and that may be anywhere."""
    instance = subject.new(4, 8)
    usual = repr(instance)
    seen: list[str] = []

    @torch.compile(backend="eager")
    def printing(tensor: torch.Tensor) -> torch.Tensor:
        torch.compiler.disable(lambda: seen.append(repr(tensor)))()
        return tensor

    for call, scope in (
        ("no_grad", torch.no_grad),
        ("inference_mode", torch.inference_mode),
        ("autocast", lambda: torch.autocast("cpu", torch.bfloat16)),
    ):
        with scope():
            seen += [str(instance), repr(instance)]
        if set(seen) != {usual}:
            raise MismatchError(f"repr(x), and str(x), under {call}", usual, " / ".join(set(seen) - {usual}))
    printing(instance)
    if seen[-1] != usual:
        raise MismatchError("repr(x) in a function under torch.compile", usual, seen[-1])


@check("printing", "f'{loss:.4f}' raises", kinds=VALUED)
def format_strings_work(subject: Subject) -> None:
    """``f'{loss:.4f}'`` of a tensor without dimensions formats its value; every training loop prints its loss so."""
    plain = subject.plain()
    losses = [("x.sum()", subject.new(4, 8).sum()), ("x.mean()", subject.new(4, 8).mean())]
    if subject.takes(plain):
        losses.append(("x", subject.wrap(plain)))
    for call, loss in losses:
        expected, text = f"{float(subject.values(loss)):.4f}", f"{loss:.4f}"
        if text != expected:
            raise MismatchError(f"f'{{{call}:.4f}}'", expected, text)
    instance = subject.new(4, 8)
    if f"{instance}" != str(instance):
        raise MismatchError("f'{x}'", str(instance), f"{instance}")


def _numbers_or_refusal(call: str, run: Callable[[], Any], expected: Any) -> None:
    """The values, or an error that a person can read: one line that says what can't be done."""
    try:
        got = run()
    except REFUSALS as error:
        text = str(error).strip()
        if not text or "\n" in text or "data pointer" in text or "storage" in text:
            raise MismatchError(call, "the values, or one line that says what to call", error) from error
        return
    if type(got) is not type(expected) or got != expected:
        raise MismatchError(call, expected, got)


@check("printing", "numpy() and tolist() give one inner tensor, garbage, or an error about storage", kinds=VALUED)
def numpy_and_tolist_give_the_values(subject: Subject) -> None:
    """``x.numpy()``, ``numpy.asarray(x)`` and ``x.tolist()`` give the values that ``x`` stands for, or an error of one
    line. Memory of a wrapper does not exist: what is read there is garbage."""
    import numpy as np

    instance = subject.new(4, 8)
    expected = subject.values(instance).cpu().tolist()
    _numbers_or_refusal("x.tolist()", instance.tolist, expected)
    _numbers_or_refusal("x.cpu().numpy()", lambda: instance.cpu().numpy().tolist(), expected)
    _numbers_or_refusal("numpy.asarray(x)", lambda: np.asarray(instance.cpu()).tolist(), expected)


def _item(tensor: torch.Tensor) -> Any:
    return tensor.item()


@check("printing", "item() and float() are wrong or raise", kinds=VALUED)
def item_gives_the_value(subject: Subject) -> None:
    """``x.item()``, ``float(x)``, ``int(x)`` and ``bool(x)`` of a tensor with one value give that value; of one with
    more they raise, as for plain tensors."""
    samples = [("x.sum()", subject.new(4, 8).sum())]
    if subject.takes(subject.plain(1, 1)):
        samples.append(("x of shape (1, 1)", subject.new(1, 1)))
    for call, made in samples:
        value = float(subject.values(made))
        for name, convert, expected in (
            ("item", _item, value),
            ("float", float, value),
            ("int", int, int(value)),
            ("bool", bool, bool(value)),
        ):
            got = convert(made)
            if type(got) is not type(expected) or got != expected:
                raise MismatchError(f"{name}() of {call}", expected, got)
    for name, convert in (("item", _item), ("float", float), ("bool", bool)):
        try:
            got = convert(subject.new(4, 8))
        except REFUSALS:
            continue
        raise MismatchError(f"{name}() of x of shape (4, 8)", "a RuntimeError", got)


def changed_in_its_last(subject: Subject, instance: Any) -> Any:
    """The same instance, its last inner tensor changed; none where that is no second set of values."""
    inner = inner_tensors(instance)
    if len(inner) < 2 or any(each.shape != instance.shape or each.dtype != instance.dtype for each in inner):
        raise NotApplicable(f"{subject.cls.__name__} does not hold several inner tensors that are all like it")
    with torch.no_grad():
        leaves_of(inner[-1])[-1].add_(1)
    return instance


@check("printing", "item() answers from one inner tensor only", kinds=(Kind.TRANSPARENT,))
def item_asks_every_inner_tensor(subject: Subject) -> None:
    """Where an instance holds several values, ``item()`` does not return one of them as if it were the only one."""
    before = subject.new(1, 1).item()
    instance = changed_in_its_last(subject, subject.new(1, 1))
    try:
        got = instance.item()
    except REFUSALS:
        return
    if got == before:
        raise MismatchError("x.item(), the last inner tensor of x changed", "an error, or another value", got)
