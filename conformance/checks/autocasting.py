"""Autocast and gradient scaling: what a plain weight does there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import VALUED, Subject

HALVES = (torch.bfloat16, torch.float16)
# w is the instance, or the plain tensor it stands for, of shape (4, 8); x is plain, (5, 8).
CALLS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "F.linear(x, w)": lambda w, x: F.linear(x, w),
    "F.linear(x, w, bias)": lambda w, x: F.linear(x, w, torch.ones(4)),
    "torch.matmul(x, w.t())": lambda w, x: torch.matmul(x, w.t()),
    "torch.mm(w, x.t())": lambda w, x: torch.mm(w, x.t()),
    "torch.addmm(ones, x, w.t())": lambda w, x: torch.addmm(torch.ones(5, 4), x, w.t()),
    "torch.bmm(x[None], w.t()[None])": lambda w, x: torch.bmm(x[None], w.t()[None]),
    "F.linear(w, x)": F.linear,
    "w * 2": lambda w, _: w * 2,
    "F.mse_loss(w, zeros)": lambda w, _: F.mse_loss(w, torch.zeros(4, 8)),
    "torch.cat([w, w.half()])": lambda w, _: torch.cat([w, w.half()]),
}


def half(subject: Subject) -> Subject:
    """Compares halves: each product was rounded to 8 or 11 bits."""
    return replace(subject, rtol=max(subject.rtol or 0.0, 0.02))


def autocast(subject: Subject, dtype: torch.dtype, *, enabled: bool = True) -> Any:
    return torch.autocast(subject.device.type, dtype, enabled=enabled)


@check("transforms", "autocast is ignored by a quantized linear")
def autocast_gives_the_dtype(subject: Subject) -> None:
    """Products with an instance under autocast have the dtype and the values that a plain tensor gives, for bfloat16
    and float16; ops that autocast leaves alone, or takes to float32, are those of plain tensors, too."""
    plain, x = subject.reference(subject.plain(4, 8)), subject.plain(5, 8, seed=2)
    lenient = half(subject)
    for dtype in HALVES:
        for text, call in CALLS.items():
            with autocast(subject, dtype):
                expected, got = call(plain, x), call(subject.new(4, 8), x)
            lenient.same(f"{text} under autocast to {dtype}", got, expected)
        with autocast(subject, dtype), autocast(subject, dtype, enabled=False):
            got = F.linear(x, subject.new(4, 8))
        subject.same("F.linear(x, w) with autocast off inside", got, F.linear(x, plain), loosely=True)


def step(subject: Subject, weight: Any, dtype: torch.dtype) -> tuple[dict[str, Any], list[Any]]:
    """A layer's result and gradients under autocast, the backward outside; and the tensors that it saved."""
    saved: list[Any] = []
    x = subject.plain(5, 8, seed=2).requires_grad_()
    bias = subject.plain(4, seed=3).requires_grad_()

    def pack(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast(subject, dtype):
        out = F.linear(x, weight, bias)
    out.float().square().sum().backward()
    return {"out": out, "x.grad": x.grad, "w.grad": weight.grad, "bias.grad": bias.grad}, saved


@check("transforms", "gradients of a quantized linear under autocast differ from a plain linear's", kinds=VALUED)
def autocast_gradients_are_those_of_plain(subject: Subject) -> None:
    """The gradients of ``F.linear(x, w, bias)`` under autocast have the dtypes and values of a plain linear's under the
    same autocast; what is saved for them of ``x`` is no wider."""
    plain, lenient = subject.reference(subject.plain(4, 8)), half(subject)
    for dtype in HALVES:
        weight = subject.new(4, 8, grad=True)
        got, saved = step(subject, weight, dtype)
        expected, _ = step(subject, plain.clone().requires_grad_(), dtype)
        for name, wanted in expected.items():
            text = f"{name} of F.linear(x, w, bias) under autocast to {dtype}"
            if got[name] is None:
                raise MismatchError(text, wanted, None)
            lenient.same(text, got[name], wanted)
        for tensor in saved:
            if tuple(tensor.shape) == (5, 8) and tensor.dtype is torch.float32:
                raise MismatchError(f"what F.linear saves of x under autocast to {dtype}", dtype, tensor.dtype)


@check("transforms", "autocast is ignored in a compiled function", kinds=VALUED, quick=False)
def autocast_compiles(subject: Subject) -> None:
    """A compiled function (backend ``aot_eager``) that enters autocast gives the dtype, values and gradients of a plain
    weight, too."""

    @torch.compile(backend="aot_eager")
    def layer(weight: Any, x: torch.Tensor) -> Any:
        with autocast(subject, torch.bfloat16):
            return F.linear(x, weight)

    x, lenient = subject.plain(5, 8, seed=2), half(subject)
    runs = []
    for weight in (subject.new(4, 8, grad=True), subject.reference(subject.plain(4, 8)).requires_grad_()):
        out = layer(weight, x)
        out.float().square().sum().backward()
        runs.append((out, weight.grad))
    for name, got, expected in zip(("the result", "w.grad"), *runs, strict=True):
        lenient.same(f"{name} of a compiled F.linear(x, w) under autocast", got, expected)


@check("transforms", "a weight that is used twice under autocast gets half of its gradient", kinds=VALUED)
def autocast_caches_the_weight_rightly(subject: Subject) -> None:
    """A leaf that several layers use inside one autocast region (torch keeps its cast there) gets the gradient of all
    of them; and after an update, the next region casts anew."""
    if not subject.takes(subject.plain(8, 8)):
        raise NotApplicable("the class takes no (8, 8)")
    reference = subject.reference(subject.plain(8, 8))
    x = subject.plain(5, 8, seed=2)
    runs = []
    for weight in (subject.new(8, 8, grad=True), reference.clone().requires_grad_()):
        with autocast(subject, torch.bfloat16):
            F.linear(F.linear(x, weight), weight).float().square().mean().backward()
        gradient = weight.grad
        with torch.no_grad():
            weight.zero_()
        with autocast(subject, torch.bfloat16):
            runs.append((gradient, F.linear(x, weight)))
    names = "w.grad of F.linear(F.linear(x, w), w) under autocast", "F.linear(x, w) under autocast, after w.zero_()"
    for text, got, expected in zip(names, *runs, strict=True):
        half(subject).same(text, got, expected)


@check("transforms", "GradScaler does not unscale, or does not skip, with wrapped parameters", kinds=VALUED)
def grad_scaler_steps_and_skips(subject: Subject) -> None:
    """A step through ``GradScaler`` is the step without it, also after ``unscale_`` and clipping; a gradient that is
    not finite skips the step."""

    def layer(*, wrapped: bool) -> nn.Linear:
        made = nn.Linear(8, 4)
        weight = subject.new(4, 8) if wrapped else subject.reference(subject.plain(4, 8))
        made.weight, made.bias = nn.Parameter(weight), nn.Parameter(subject.plain(4, seed=1))
        return made

    def run(model: nn.Linear, scaler: torch.amp.GradScaler, factor: float = 1.0) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler.scale(model(subject.plain(5, 8, seed=2)).square().mean() * factor).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    device = subject.device.type
    scaled, alone = layer(wrapped=True), layer(wrapped=False)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    run(scaled, scaler)
    run(alone, torch.amp.GradScaler(device, enabled=False))
    for name in ("weight", "bias"):
        text = f"layer.{name} after GradScaler.step(optimizer)"
        subject.stored(text, getattr(scaled, name), getattr(alone, name).detach(), loosely=True)
    before = [subject.values(parameter).clone() for parameter in scaled.parameters()]
    run(scaled, scaler, float("inf"))
    after = [subject.values(parameter) for parameter in scaled.parameters()]
    subject.same("[w, bias] after GradScaler.step(optimizer) with gradients that are not finite", after, before)
    if scaler.get_scale() != 512.0:
        raise MismatchError("GradScaler.get_scale() after such a step", 512.0, scaler.get_scale())
