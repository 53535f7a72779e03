"""The backward under way: through in-place ops, with hooks on the graph, scaled, watched for NaN."""

from __future__ import annotations

# ruff: noqa: ARG005 - each call has both operands
from typing import Any

import torch
from torch import nn

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Kind, Subject

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
REFUSALS = (RuntimeError, NotImplementedError, ValueError)


def _set(target: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    target[key] = value
    return target


_IN_PLACE: dict[str, Any] = {
    "y = x.clone(); y.mul_(t)": lambda x, t: x.clone().mul_(t),
    "y = x.clone(); y.add_(t, alpha=2)": lambda x, t: x.clone().add_(t, alpha=2),
    "y = x.clone(); y[0] = t[0]": lambda x, t: _set(x.clone(), 0, t[0]),
    "y = x.clone(); y[1:3] = 0": lambda x, t: _set(x.clone(), slice(1, 3), 0.0),
    "y = x.clone(); y[:2].mul_(t[:2])": lambda x, t: _written(x, lambda y: y[:2].mul_(t[:2])),
    "y = x.clone(); y.t().mul_(t.t())": lambda x, t: _written(x, lambda y: y.t().mul_(t.t())),
    "y = x.clone(); y.masked_fill_(t > 0, 0)": lambda x, t: x.clone().masked_fill_(t > 0, 0.0),
    "y = x.clone(); y.copy_(t)": lambda x, t: x.clone().copy_(t),
    "y = t.clone(); y.add_(x)": lambda x, t: t.clone().add_(x),
    "y = t.clone(); y[:2] = x[:2]": lambda x, t: _set(t.clone(), slice(0, 2), x[:2]),
    "y = zeros_like(t); y.copy_(x)": lambda x, t: torch.zeros_like(t).copy_(x),
}


def _written(x: torch.Tensor, write: Any) -> torch.Tensor:
    y = x.clone()
    write(y)
    return y


@check("autograd", "gradients are wrong behind an in-place op", kinds=VALUED)
def gradients_pass_through_in_place_ops(subject: Subject) -> None:
    """In-place ops on what was computed of an instance, by views too, and of plain tensors with it: gradients are those
    of the plain run. A class may refuse to be written to.
    """
    weights = subject.plain(4, 8, seed=2)
    tried = 0
    for call, function in _IN_PLACE.items():
        x, t = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1)
        p = subject.values(x).clone().requires_grad_()
        (function(p, t) * weights).sum().backward()
        try:
            loss = (function(x, t) * weights).sum()
        except REFUSALS:
            continue
        tried += 1
        if loss.requires_grad:
            loss.backward()
        text = f"{call}; (y * c).sum().backward(); x.grad"
        got = torch.zeros_like(t) if x.grad is None and not p.grad.any() else x.grad
        subject.same(text, got, p.grad, loosely=True)
    if not tried:
        raise NotApplicable("it refuses in-place ops")


@check("autograd", "anomaly mode, hooks on nodes or torch.autograd.grad fail with instances", kinds=VALUED)
def autograd_tools_take_instances(subject: Subject) -> None:
    """Anomaly mode, hooks on several gradients and on nodes, gradient edges, ``backward(inputs=...)``, a graph kept for
    a second time: all give the gradient of the plain run.
    """
    t = subject.plain(4, 8, seed=1)
    for call, tool in _TOOLS.items():
        x = subject.new(4, 8, grad=True)
        got, times = tool(x, t)
        subject.same(call, got, t * times, loosely=True)
    x = subject.new(4, 8, grad=True)
    (x * t).sum().backward()
    x.grad = x.grad.clone()
    subject.same("x.grad = x.grad.clone(); x.grad", x.grad, t, loosely=True)


def _anomaly(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    with torch.autograd.detect_anomaly(check_nan=True):
        (x * t).sum().backward()
    return x.grad, 1


def _several(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    seen: list[Any] = []
    other = t.clone().requires_grad_()
    torch.autograd.graph.register_multi_grad_hook((x, other), seen.extend)
    (x * other).sum().backward()
    return seen[0], 1


def _nodes(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    y: Any = x * t
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if each is None else each * 2 for each in inputs))
    y.grad_fn.register_prehook(lambda outputs: None)
    y.sum().backward()
    return x.grad, 2


def _edge(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    edge: Any = torch.autograd.graph.get_gradient_edge(x)
    return torch.autograd.grad((x * t).sum(), [edge])[0], 1


def _inputs(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    (x * t).sum().backward(inputs=[x])
    return x.grad, 1


def _kept(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    loss = (x * t).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return x.grad, 2


def _unused(x: torch.Tensor, t: torch.Tensor) -> tuple[Any, int]:
    other = x.detach().clone().requires_grad_()
    return torch.autograd.grad((x * t).sum(), [x, other], allow_unused=True, materialize_grads=True)[1], 0


_TOOLS: dict[str, Any] = {
    "with detect_anomaly(): (x * t).sum().backward(); x.grad": _anomaly,
    "register_multi_grad_hook((x, t), hook): what hook gets for x": _several,
    "y = x * t; y.grad_fn.register_hook(twice); y.sum().backward(); x.grad": _nodes,
    "grad((x * t).sum(), get_gradient_edge(x))": _edge,
    "(x * t).sum().backward(inputs=[x]); x.grad": _inputs,
    "loss.backward(retain_graph=True); loss.backward(); x.grad": _kept,
    "grad(loss, unused, materialize_grads=True)": _unused,
}


@check("autograd", "GradScaler: an overflow in a wrapped gradient is not seen, or gradients stay scaled", kinds=VALUED)
def gradient_scaling_works(subject: Subject) -> None:
    """``torch.amp.GradScaler`` unscales the gradients of Parameters of the class, and skips the step where one is not
    finite."""
    device = subject.device.type
    for factor in (1.0, float("inf")):
        p, t = nn.Parameter(subject.new(4, 8)), subject.plain(4, 8, seed=1)
        before = subject.values(p).clone()
        optimizer = torch.optim.SGD([p], lr=0.0 if factor == 1.0 else 1.0)
        scaler: Any = torch.amp.GradScaler(device, init_scale=8.0)
        scaler.scale((p * t * factor).sum()).backward()
        scaler.unscale_(optimizer)
        if factor == 1.0:
            subject.same("GradScaler: p.grad after unscale_(optimizer)", p.grad, t, loosely=True)
        scaler.step(optimizer)
        subject.same("GradScaler.step(optimizer) with infinite gradients: p", p, before, loosely=factor == 1.0)
        scaler.update()
        if scaler.get_scale() != (8.0 if factor == 1.0 else 4.0):
            raise MismatchError("GradScaler.get_scale() after gradients that are inf", 4.0, scaler.get_scale())
