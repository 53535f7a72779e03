"""torch.func: the right values, or an error that says so; never other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..check import check
from ..outcome import KnownLimit, MismatchError
from ..refusal import is_refusal
from ..subject import Subject

# w is the instance, or the plain tensor it stands for, of shape (4, 8); x is plain, (3, 8).
Transform = Callable[[Any, torch.Tensor], Any]

GRADIENTS: dict[str, Transform] = {
    "torch.func.grad(lambda w: w.square().sum())(w)": lambda w, _: torch.func.grad(lambda v: v.square().sum())(w),
    "torch.func.grad(lambda w: F.linear(x, w).square().sum())(w)": lambda w, x: torch.func.grad(
        lambda v: F.linear(x, v).square().sum()
    )(w),
    "torch.func.grad(lambda x: F.linear(x, w).square().sum())(x)": lambda w, x: torch.func.grad(
        lambda v: F.linear(v, w).square().sum()
    )(x),
    "torch.func.grad of torch.func.grad, of w ** 3": lambda w, _: torch.func.grad(
        lambda v: torch.func.grad(lambda u: (u**3).sum())(v).sum()
    )(w),
    "torch.func.vjp(lambda w: F.linear(x, w), w)[1](ones)": lambda w, x: torch.func.vjp(lambda v: F.linear(x, v), w)[1](
        torch.ones(3, 4)
    )[0],
    "torch.func.jacrev(lambda x: F.linear(x, w))(x)": lambda w, x: torch.func.jacrev(lambda v: F.linear(v, w))(x),
    "torch.func.jacrev(lambda w: w * 2)(w)": lambda w, _: torch.func.jacrev(lambda v: v * 2)(w),
    "torch.func.hessian(lambda w: w.square().sum())(w)": lambda w, _: torch.func.hessian(lambda v: v.square().sum())(w),
    "torch.autograd.functional.jacobian(lambda w: w * 2, w)": lambda w, _: torch.autograd.functional.jacobian(
        lambda v: v * 2, w
    ),
}
MAPS: dict[str, Transform] = {
    "torch.func.vmap(lambda row: row * 2 + 1)(w)": lambda w, _: torch.func.vmap(lambda row: row * 2 + 1)(w),
    "torch.func.vmap(lambda column: column.sum(), in_dims=1)(w)": lambda w, _: torch.func.vmap(
        lambda column: column.sum(), in_dims=1
    )(w),
    "torch.func.vmap(lambda row: F.linear(row, w))(x)": lambda w, x: torch.func.vmap(lambda row: F.linear(row, w))(x),
    "torch.func.vmap(lambda row: x @ row)(w)": lambda w, x: torch.func.vmap(lambda row: x @ row)(w),
    "torch.func.vmap(torch.func.grad(lambda row: row.square().sum()))(w)": lambda w, _: torch.func.vmap(
        torch.func.grad(lambda row: row.square().sum())
    )(w),
    "torch.func.vmap(torch.func.grad(lambda row: F.linear(row, w).square().sum()))(x)": lambda w, x: torch.func.vmap(
        torch.func.grad(lambda row: F.linear(row, w).square().sum())
    )(x),
    "torch.func.vmap(lambda v: F.linear(x, v))(torch.stack([w, w]))": lambda w, x: torch.func.vmap(
        lambda v: F.linear(x, v)
    )(torch.stack([w, w])),
    "torch.func.functionalize(lambda w: w.clone().add_(1))(w)": lambda w, _: torch.func.functionalize(
        lambda v: v.clone().add_(1)
    )(w),
}
FORWARD: dict[str, Transform] = {
    "torch.func.jvp(lambda w: w * w, (w,), (ones,))[1]": lambda w, _: torch.func.jvp(
        lambda v: v * v, (w,), (torch.ones(4, 8),)
    )[1],
    "torch.func.jvp(lambda w: F.linear(x, w), (w,), (ones,))[1]": lambda w, x: torch.func.jvp(
        lambda v: F.linear(x, v), (w,), (torch.ones(4, 8),)
    )[1],
    "torch.func.jvp(lambda x: F.linear(x, w), (x,), (x,))[1]": lambda w, x: torch.func.jvp(
        lambda v: F.linear(v, w), (x,), (x,)
    )[1],
    "torch.func.jacfwd(lambda w: w * 2)(w)": lambda w, _: torch.func.jacfwd(lambda v: v * 2)(w),
    "torch.func.jacfwd(lambda x: F.linear(x, w))(x)": lambda w, x: torch.func.jacfwd(lambda v: F.linear(v, w))(x),
}


def right_or_refused(subject: Subject, transforms: Mapping[str, Transform]) -> None:
    """Each transform gives what it gives for the plain tensor, or raises an error that speaks of what it can't do."""
    plain, x = subject.reference(subject.plain(4, 8)), subject.plain(3, 8, seed=2)
    about = rf"{subject.cls.__name__}|transform|vmap|batch|functorch|grad|forward"
    for text, transform in transforms.items():
        expected = transform(plain, x)
        try:
            got = transform(subject.new(4, 8), x)
        except Exception as error:
            if not is_refusal(error, about):
                raise MismatchError(text, "a result, or an error that says what is not supported", error) from error
        else:
            subject.same(text, got, expected, loosely=True)


@check("transforms", "torch.func.grad and jacrev strip the class, or give wrong gradients")
def func_gradients_are_right_or_refused(subject: Subject) -> None:
    """``grad``, ``vjp``, ``jacrev`` and ``hessian``, over an instance and over what closes over one."""
    right_or_refused(subject, GRADIENTS)


@check("transforms", "vmap strips the class, or maps over the raw payload")
def vmap_is_right_or_refused(subject: Subject) -> None:
    """``vmap`` over an instance, over what closes over one, and over ``grad``; and ``functionalize``."""
    right_or_refused(subject, MAPS)


@check("transforms", "forward-mode derivatives of wrappers are wrong")
def func_jvp_is_right_or_refused(subject: Subject) -> None:
    """``jvp`` and ``jacfwd``, with respect to an instance and to what meets one."""
    right_or_refused(subject, FORWARD)


@check("transforms", "torch.func.linearize over a wrapper gives wrong derivatives, silently", quick=False)
def linearize_is_right_or_refused(subject: Subject) -> None:
    """``linearize`` gives the derivative that ``jvp`` gives."""
    text = "torch.func.linearize(lambda w: w * w, w)[1](ones)"
    ones, plain = torch.ones(4, 8), subject.reference(subject.plain(4, 8))
    instance, about = subject.new(4, 8), rf"{subject.cls.__name__}|transform|functorch|grad|forward"
    try:
        got = torch.func.linearize(lambda v: v * v, instance)[1](ones)
    except Exception as error:
        if is_refusal(error, about):
            return
        raise MismatchError(text, "a result, or an error that says what is not supported", error) from error
    try:
        subject.same(text, got, plain * 2, loosely=True)
    except MismatchError as mismatch:
        jvp = torch.func.jvp(lambda v: v * v, (instance,), (ones,))[1]
        subject.same("torch.func.jvp(lambda w: w * w, (w,), (ones,))[1]", jvp, plain * 2, loosely=True)
        raise KnownLimit(
            "torch.func.linearize folds constants by reading memory that a wrapper does not have, and is wrong; "
            "torch.func.jvp is right"
        ) from mismatch


@check("transforms", "functional_call with wrapped parameters loses them")
def functional_call_takes_instances(subject: Subject) -> None:
    """``torch.func.functional_call`` with an instance for a weight computes with it, and gradients reach it."""
    plain, x = subject.reference(subject.plain(4, 8)), subject.plain(3, 8, seed=2)
    module, bias = nn.Linear(8, 4), subject.plain(4, seed=3)
    outcomes = []
    for weight in (subject.new(4, 8, grad=True), plain.clone().requires_grad_()):
        out = torch.func.functional_call(module, {"weight": weight, "bias": bias}, (x,))
        out.square().sum().backward()
        outcomes.append((out, weight.grad))
    for name, got, expected in zip(("", "; w.grad"), *outcomes, strict=True):
        call = f'torch.func.functional_call(linear, {{"weight": w, "bias": bias}}, x){name}'
        subject.same(call, got, expected, loosely=True)
    module_weight = module.weight
    if type(module_weight.data) is not torch.Tensor:
        raise MismatchError("linear.weight after functional_call", torch.Tensor, type(module_weight.data))
