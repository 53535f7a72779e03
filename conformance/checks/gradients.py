"""Gradients: their values, by whichever op the instance is left, and their types."""

from __future__ import annotations

# ruff: noqa: ARG005, PLW0108 - each call has both operands, and is written out
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Kind, Subject

F = torch.nn.functional
VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
Calls = Mapping[str, Callable[[Any, torch.Tensor], torch.Tensor]]

_PRODUCTS: Calls = {
    "F.linear(t, x)": lambda x, t: F.linear(t, x),
    "F.linear(x, t)": lambda x, t: F.linear(x, t),
    "F.linear(t, x, x[:, 0])": lambda x, t: F.linear(t, x, x[:, 0]),
    "t @ x.t()": lambda x, t: t @ x.t(),
    "x.t() @ t": lambda x, t: x.t() @ t,
    "torch.addmm(t[:, :4], x, t.t())": lambda x, t: torch.addmm(t[:, :4], x, t.t()),
    "x @ t[0]": lambda x, t: x @ t[0],
    "x @ x.t()": lambda x, t: x @ x.t(),
    "F.embedding(index, x)": lambda x, t: F.embedding(torch.tensor([0, 2, 2], device=x.device), x) * t[:3],
}
_POINTWISE: Calls = {
    "x * t": lambda x, t: x * t,
    "t - x": lambda x, t: t - x,
    "x * x": lambda x, t: x * x,
    "x.sigmoid() * t": lambda x, t: x.sigmoid() * t,
    "F.gelu(x)": lambda x, t: F.gelu(x) * t,
    "torch.where(t > 0, x, t)": lambda x, t: torch.where(t > 0, x, t) * t,
    "x.softmax(-1) * t": lambda x, t: x.softmax(-1) * t,
    "F.layer_norm(x, (8,))": lambda x, t: F.layer_norm(x, (8,)) * t,
    "torch.addcmul(t, x, x)": lambda x, t: torch.addcmul(t, x, x),
}
_SHAPES: Calls = {
    "x.t()": lambda x, t: x.t() * t.t(),
    "x.view(8, 4)": lambda x, t: x.view(8, 4) * t.view(8, 4),
    "x[1:3]": lambda x, t: x[1:3] * t[1:3],
    "x[::2]": lambda x, t: x[::2] * t[::2],
    "x[[0, 2]]": lambda x, t: x[[0, 2]] * t[[0, 2]],
    "x[0].expand(4, 8)": lambda x, t: x[0].expand(4, 8) * t,
    "torch.cat([x, t])": lambda x, t: torch.cat([x, t]) * torch.cat([t, t]),
    "x.split(2)[1]": lambda x, t: x.split(2)[1] * t[:2],
    "x.sum(0)": lambda x, t: x.sum(0) * t[0],
    "x.amax(1)": lambda x, t: x.amax(1) * t[:, 0],
    "x.clone()": lambda x, t: x.clone() * t,
    "x.double()": lambda x, t: (x.double() * t).float(),
}


def _same_gradients(subject: Subject, calls: Calls) -> None:
    """Of each call the gradients of the instance ``x`` and the plain ``t`` are those of the plain run."""
    for call, function in calls.items():
        x, t = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1).requires_grad_()
        plain, other = subject.values(x).clone().requires_grad_(), t.detach().clone().requires_grad_()
        function(plain, other).square().sum().backward()
        function(x, t).square().sum().backward()
        for name, got, expected in (("x.grad", x.grad, plain.grad), ("t.grad", t.grad, other.grad)):
            text = f"{call}.square().sum().backward(); {name}"
            if (got is None) != (expected is None):
                raise MismatchError(text, expected, got)
            if expected is not None:
                subject.same(text, got, expected, loosely=True)


@check("autograd", "wrong or missing gradients of matrix products", kinds=VALUED)
def gradients_of_products_are_right(subject: Subject) -> None:
    """Through linear layers and products, the instance being the weight or the input, gradients of both operands are
    those of the plain run."""
    _same_gradients(subject, _PRODUCTS)


@check("autograd", "wrong or missing gradients of element-wise ops", kinds=VALUED)
def gradients_of_pointwise_ops_are_right(subject: Subject) -> None:
    """Through element-wise ops and normalizations, gradients of both operands are those of the plain run."""
    _same_gradients(subject, _POINTWISE)


@check("autograd", "wrong or missing gradients of views and reductions", kinds=VALUED)
def gradients_of_views_are_right(subject: Subject) -> None:
    """Through views, slices, joins, reductions and casts, gradients are those of the plain run."""
    _same_gradients(subject, _SHAPES)


@check("autograd", "the gradient of the weight stays None where the input requires grad, too", kinds=VALUED)
def weights_get_gradients_beside_inputs(subject: Subject) -> None:
    """A Parameter of the class gets its gradient from ``F.linear``, whether the input requires grad or not. A class
    that can't train may raise; to leave ``grad`` None without a word trains a part of the model.
    """
    for needed in (True, False):
        weight = nn.Parameter(subject.new(4, 8))
        x = subject.plain(2, 8, seed=1).requires_grad_(needed)
        text = f"F.linear(input, weight).sum().backward(); weight.grad, where input.requires_grad is {needed}"
        out = F.linear(x, weight)
        if not out.requires_grad:
            raise MismatchError(text, "a gradient, or an error", "the result does not require grad")
        out.sum().backward()
        if weight.grad is None:
            raise MismatchError(text, "a gradient, or an error", None)
        subject.same(text, weight.grad, x.detach().sum(0).expand(4, 8), loosely=True)


@check("autograd", "F.linear(x, w, bias=b) drops the bias; all by keyword: IndexError", kinds=VALUED)
def linear_takes_keywords(subject: Subject) -> None:
    """``F.linear``, ``torch.addmm`` and ``torch.mm`` give the same whether operands are positional or by keyword:
    handlers that read ``args`` by position lose them."""
    weight, x, bias = subject.new(4, 8), subject.plain(2, 8, seed=1), subject.plain(4, seed=2)
    reference = subject.values(weight)
    expected = F.linear(x, reference, bias)
    calls: tuple[tuple[str, Any], ...] = (
        ("F.linear(t, x, b)", lambda: F.linear(x, weight, bias)),
        ("F.linear(t, x, bias=b)", lambda: F.linear(x, weight, bias=bias)),
        ("F.linear(input=t, weight=x, bias=b)", lambda: F.linear(input=x, weight=weight, bias=bias)),
        ("F.linear(t, bias=b, weight=x)", lambda: F.linear(x, bias=bias, weight=weight)),
        ("torch.addmm(b, t, mat2=x.t())", lambda: torch.addmm(bias, x, mat2=weight.t())),
        ("torch.mm(input=t, mat2=x.t()) + b", lambda: torch.mm(input=x, mat2=weight.t()) + bias),
    )
    for call, function in calls:
        subject.same(call, function(), expected, loosely=True)
    scaled, wanted = (torch.addmm(bias, x, each.t(), beta=2, alpha=3) for each in (weight, reference))
    subject.same("torch.addmm(b, t, x.t(), beta=2, alpha=3)", scaled, wanted, loosely=True)


@check("autograd", "a plain bias beside a wrapped weight gets a gradient of the wrapper class", kinds=VALUED)
def plain_leaves_get_plain_gradients(subject: Subject) -> None:
    """In a partly wrapped model a plain Parameter has a plain gradient, and so has a plain input. Torch can't compile
    again with a plain Parameter whose gradient is a wrapper; optimizers would keep wrapper state for it.
    """
    weight = subject.new(4, 8, grad=True)
    x, bias, scale = (subject.plain(*shape, seed=1).requires_grad_() for shape in ((2, 8), (4,), (2, 4)))
    (F.linear(x, weight, bias) * scale).sum().backward()
    text = "(F.linear(x, weight, bias) * scale).sum().backward(); type of the gradient of the plain"
    for name, leaf in (("x", x), ("bias", bias), ("scale", scale)):
        if type(leaf.grad) is not torch.Tensor:
            raise MismatchError(f"{text} {name}", torch.Tensor, type(leaf.grad))


@check("autograd", "gradients don't accumulate, or zero_grad() and clipping fail on them", kinds=VALUED)
def gradients_accumulate(subject: Subject) -> None:
    """Gradients of several backwards add up, are of one type, whatever op they come by, and of the shape of the leaf;
    ``zero_grad`` and clipping take them.
    """
    weight, t = nn.Parameter(subject.new(4, 8)), subject.plain(4, 8, seed=1)
    losses: Calls = {"weight * t": lambda x, t: x * t, "F.linear(t, weight)": lambda x, t: F.linear(t, x)}
    expected = torch.zeros_like(t)
    types = {type(_gradient(function, subject.new(4, 8, grad=True), t)) for function in losses.values()}
    for function in (*losses.values(), *losses.values()):
        expected += _gradient(function, subject.values(weight).clone().requires_grad_(), t)
        function(weight, t).sum().backward()
        types.add(type(weight.grad))
    subject.same("four backwards; weight.grad", weight.grad, expected, loosely=True)
    if len(types) > 1 or not types <= {torch.Tensor, type(weight)}:
        raise MismatchError("type of weight.grad", f"plain or {subject.cls.__name__}, always the same", list(types))
    norm = nn.utils.clip_grad_norm_([weight], 1.0)
    subject.same("clip_grad_norm_([weight], 1.0)", subject.values(norm), expected.norm(), loosely=True)
    clipped = expected / (expected.norm() + 1e-6)
    subject.same("clip_grad_norm_([weight], 1.0); weight.grad", weight.grad, clipped, loosely=True)
    nn.utils.clip_grad_value_([weight], 0.01)
    text = "clip_grad_value_([weight], 0.01); weight.grad"
    subject.same(text, weight.grad, clipped.clamp(-0.01, 0.01), loosely=True)
    module = nn.Module()
    module.weight = weight
    module.zero_grad(set_to_none=False)
    subject.same("module.zero_grad(set_to_none=False); weight.grad", weight.grad, torch.zeros_like(t))
    module.zero_grad()
    if weight.grad is not None:
        raise MismatchError("module.zero_grad(); weight.grad", None, weight.grad)


def _gradient(function: Any, leaf: Any, t: torch.Tensor) -> Any:
    function(leaf, t).sum().backward()
    return leaf.grad


@check("autograd", "the second backward fails, or its gradients are wrong", kinds=VALUED)
def second_derivatives_are_right(subject: Subject) -> None:
    """``create_graph=True``: the gradient can be differentiated again, with respect to the instance and to a plain
    operand."""
    x, t = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1).requires_grad_()
    plain, other = subject.values(x).clone().requires_grad_(), t.detach().clone().requires_grad_()
    got, expected = (_second(*operands) for operands in ((x, t), (plain, other)))
    for name, one, wanted in zip(("x", "t"), got, expected, strict=True):
        subject.same(f"grad of grad((x ** 3 * t).sum(), x).sum() with respect to {name}", one, wanted, loosely=True)


def _second(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    (first,) = torch.autograd.grad((x**3 * t).sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), (x, t))


@check("autograd", "gradients differ from finite differences", kinds=VALUED)
def gradients_agree_with_finite_differences(subject: Subject) -> None:
    """In float64 the derivative along a direction, taken from values alone, is that of the gradient: of an instance,
    if its class is transparent, and of a plain operand beside one."""
    p, t = subject.plain(4, 8, dtype=torch.float64), subject.plain(4, 8, dtype=torch.float64, seed=1)
    if not subject.takes(p) or subject.rtol is not None:
        raise NotApplicable("it takes no float64, or its products are approximate")
    along = subject.plain(4, 8, dtype=torch.float64, seed=2)
    step = 1e-5 * along
    for call, function in {**_PRODUCTS, **_POINTWISE}.items():
        x, leaf = subject.wrap(p, grad=True), t.clone().requires_grad_()
        function(x, leaf).square().sum().backward()
        moves: list[tuple[str, Any, Any]] = [("t", leaf.grad, lambda sign: (subject.wrap(p), t + sign * step))]
        if subject.kind is Kind.TRANSPARENT:
            moves.append(("x", x.grad, lambda sign: (subject.wrap(p + sign * step), t)))
        for name, gradient, moved in moves:
            if gradient is None:
                continue
            up, down = (subject.values(function(*moved(sign)).square().sum()) for sign in (1, -1))
            numeric, analytic = (up - down) / 2e-5, (subject.values(gradient) * along).sum()
            if not torch.allclose(numeric, analytic, rtol=1e-5, atol=1e-6):
                text = f"{call}.square().sum(): derivative by {name} along a direction"
                raise MismatchError(text, float(numeric), float(analytic))


@check("autograd", "gradcheck fails through wrapping and unwrapping", kinds=(Kind.TRANSPARENT,))
def gradcheck_passes_through_the_wrapper(subject: Subject) -> None:
    """``torch.autograd.gradcheck`` and ``gradgradcheck`` of wrap, compute, unwrap; where ``make`` and the decoding are
    differentiable."""
    p = subject.plain(3, 2, dtype=torch.float64)
    if not subject.takes(p):
        raise NotApplicable("it takes no float64 matrix of shape (3, 2)")
    p.requires_grad_()
    try:
        made = subject.make(p)
    except (RuntimeError, ValueError):
        raise NotApplicable("make refuses a tensor that requires grad") from None

    def through(plain: torch.Tensor) -> torch.Tensor:
        return subject.decode((subject.make(plain).sigmoid() @ subject.make(plain).t()).sin())

    if not made.requires_grad or not through(p).requires_grad:
        raise NotApplicable("make or the decoding is not differentiable")
    torch.autograd.gradcheck(through, p)
    torch.autograd.gradgradcheck(through, p)
