"""Compiled training: gradients that meet a graph's guess, layers, optimizers, and models that are wrapped in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim

from ..check import check
from ..graphs import compiled, eagerly, plain_of, same_as_eager, same_gradient
from ..subject import VALUED, Kind, Subject
from .compiling import INDUCTOR, needs_a_compiler


@check("compile", "a plain gradient arrives where the graph was traced with the class: metadata error", kinds=VALUED)
def plain_tangents_are_taken(subject: Subject) -> None:
    """``compiled(f)(x).backward(plain)`` where the result is an instance. The backward was traced with a guess, an
    instance; the class turns the plain one into that, or the compiled function gave a plain result already."""

    def backward(function: Callable[..., Any]) -> Any:
        x = subject.new(4, 8, grad=True)
        function(x).backward(subject.plain(4, 8, seed=3))
        return x.grad

    expected = eagerly(backward, _scaled)
    got = backward(compiled(_scaled))
    same_gradient(subject, "x.grad after compiled(x * 2 + 1).backward(plain)", got, expected, loosely=True)


def _scaled(x: Any) -> Any:
    return x * 2 + 1


@check(
    "compile",
    "a gradient of the class arrives where the graph was traced with a plain one: metadata error",
    kinds=VALUED,
)
def wrapped_tangents_are_taken(subject: Subject) -> None:
    """A plain result of a graph is multiplied by an instance outside: its gradient may be an instance. A class where
    that loses something may refuse with an error that names what to implement."""
    plain, other = subject.plain(4, 8), subject.new(4, 8, seed=1)

    def backward(function: Callable[..., Any]) -> Any:
        p = plain.clone().requires_grad_()
        (function(p) * other).sum().backward()
        return p.grad

    expected = eagerly(backward, _scaled)
    try:
        got = backward(compiled(_scaled))
    except RuntimeError as error:
        if subject.kind is Kind.TRANSPARENT or "__coerce_same_metadata_as_tangent__" not in str(error):
            raise
        return
    same_gradient(subject, "p.grad after (compiled(p * 2 + 1) * x).sum().backward()", got, expected, loosely=True)


@check("compile", "two results, a backward by one of them: the missing gradient is of the wrong type", kinds=VALUED)
def a_backward_through_one_of_two_results(subject: Subject) -> None:
    """The other result's gradient is zeros, plain ones, where the graph was traced with the class."""

    def two(x: Any, p: torch.Tensor) -> Any:
        return x * p, x * 3

    for index in (0, 1):

        def backward(function: Callable[..., Any], index: int = index) -> Any:
            x, p = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1).requires_grad_()
            function(x, p)[index].sum().backward()
            return x.grad, p.grad

        expected = eagerly(backward, two)
        got = backward(compiled(two))
        label = f"gradients of x and p by result {index} of compiled f(x, p): x * p, x * 3"
        for one, wanted in zip(got, expected, strict=True):
            same_gradient(subject, label, one if wanted is not None else None, wanted, loosely=True)


def layer_of(
    subject: Subject, rows: int = 4, columns: int = 8, seed: int = 0, *, grad: bool = True, bias: bool = True
) -> nn.Linear:
    """A linear layer whose weight is an instance, its bias plain."""
    layer = nn.Linear(columns, rows, bias=bias, device=subject.device)
    layer.weight = nn.Parameter(subject.new(rows, columns, seed=seed), requires_grad=grad)
    if bias:
        layer.bias = nn.Parameter(subject.plain(rows, seed=seed + 7), requires_grad=grad)
    return layer


def model_of(subject: Subject, *, grad: bool = True, bias: bool = True) -> nn.Sequential:
    """Two such layers with a nonlinearity between; the same each time."""
    first, second = (
        layer_of(subject, *shape, seed=seed, grad=grad, bias=bias) for seed, shape in enumerate(((4, 8), (6, 4)))
    )
    return nn.Sequential(first, nn.Tanh(), second)


def _train(
    subject: Subject, model: nn.Module, call: Callable[..., Any], step: Callable[[], Any], *, steps: int = 2
) -> list[Any]:
    """Losses, gradients of each step, and the parameters afterwards, all plain."""
    found: list[Any] = []
    torch.manual_seed(0)
    for index in range(steps):
        loss = F.mse_loss(call(subject.plain(5, 8, seed=20 + index)), subject.plain(5, 6, seed=30 + index))
        loss.backward()
        found += [plain_of(subject, loss), *(plain_of(subject, p.grad) for p in model.parameters())]
        step()
        model.zero_grad()
    return found + [plain_of(subject, p).clone() for p in model.parameters()]


@check("compile", "a compiled model with wrapped weights trains otherwise than eagerly, or not at all", kinds=VALUED)
def training_steps_compile(subject: Subject) -> None:
    """Two SGD steps of a model whose weights are instances: losses, gradients and weights are those of eager steps."""
    model, traced = model_of(subject), model_of(subject)
    run = lambda: _train(subject, model, model, optim.SGD(model.parameters(), lr=0.1).step)  # noqa: E731
    expected = eagerly(run)
    got = _train(subject, traced, compiled(traced), optim.SGD(traced.parameters(), lr=0.1).step)
    subject.same("losses, gradients and weights of two compiled SGD steps", got, expected, loosely=True)


@check("compile", "torch.compile(optimizer.step) loses the update, or fails", kinds=VALUED)
def optimizer_steps_compile(subject: Subject) -> None:
    """``torch.compile(optimizer.step)`` over instances: the weights afterwards are those of eager steps."""
    for make in (optim.SGD, optim.AdamW):
        model, traced = model_of(subject, bias=False), model_of(subject, bias=False)
        optimizer, other = (make(each.parameters(), lr=0.01) for each in (model, traced))
        expected = eagerly(_train, subject, model, model, optimizer.step)
        torch.compiler.reset()
        got = _train(subject, traced, traced, torch.compile(other.step, backend="aot_eager"))
        subject.same(f"weights after two compiled {make.__name__} steps", got, expected, loosely=True)


@check("compile", "a partly wrapped model: after one backward the next compilation crashes", kinds=VALUED)
def partly_wrapped_models_compile_again(subject: Subject) -> None:
    """Weight wrapped, bias plain; compiled, a backward, compiled again with the gradients in place. A plain bias with a
    gradient of the class can't be traced."""
    model, traced = layer_of(subject), layer_of(subject)

    def twice(layer: nn.Module, compile_it: Callable[[Any], Any]) -> list[Any]:
        for rows in (3, 5):
            compile_it(layer)(subject.plain(rows, 8, seed=rows)).square().sum().backward()
        return [plain_of(subject, p.grad) for p in layer.parameters()]

    expected = eagerly(twice, model, lambda layer: layer)
    got = twice(traced, compiled)
    subject.same("gradients of weight and bias after two compilations", got, expected, loosely=True)


@check(
    "compile",
    "frozen weights: constant folding runs ops that the class doesn't know",
    kinds=VALUED,
    quick=False,
    seconds=300,
)
def frozen_weights_are_folded(subject: Subject) -> None:
    """Inductor with ``freezing``: parameters become constants, and ops on them run when it compiles."""
    needs_a_compiler()
    model = model_of(subject, grad=False).eval()
    x = subject.plain(5, 8, seed=20)
    with torch.no_grad():
        expected = eagerly(model, x)
        options = {**INDUCTOR["options"], "freezing": True}
        got = compiled(model, backend="inductor", options=options)(x)
    same_as_eager(subject, "model(x), compiled with freezing", got, expected, loosely=True)
