"""Compiled functions that return a trainable wrapper whose gradients are plain: gradients as eager, and plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects import Doubled
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import lamina
from lamina import LoggingTensor, PerTensor, ScaledInt8Tensor, WrapperTensor
from lamina.subclasses.core.tangent import Tangent

Function = Callable[[Any, torch.Tensor], Any]
RESULTS: dict[str, Function] = {
    "itself": lambda p, _x: p,
    "alias": lambda p, _x: p.view_as(p),
    "clone": lambda p, _x: p.clone(),
    "half": lambda p, _x: p.half(),
    "double": lambda p, _x: p.double(),
    "cat": lambda p, _x: torch.cat([p, p]),
    "stack": lambda p, _x: torch.stack([p, p]),
    "t": lambda p, _x: p.t(),
    "contiguous": lambda p, _x: p.t().contiguous(),
    "slice": lambda p, _x: p[1:],
    "part of the scales": lambda p, _x: p[:, 2:5].clone(),
    "view": lambda p, _x: p.view(-1),
    "expand": lambda p, _x: p.expand(2, 4, 8),
    "index_select": lambda p, _x: p.index_select(0, torch.tensor([2, 0, 2])),
    "decoded": lambda p, _x: p * 2,
    "two": lambda p, _x: (p.clone(), p.half()),
    "a list": lambda p, _x: list(p.split(2)),
    "with a product": lambda p, x: (p.clone(), F.linear(x, p)),
    "made inside": lambda p, x: (ScaledInt8Tensor.from_plain(x @ x.t()), p.clone()),
}


class Calls(nn.Module):
    """A module that calls a function of its weight."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(4, 8)), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.weight, x)


def parameter_and_call(function: Function, wrapped: bool, backend: str | None) -> tuple[Any, Callable[..., Any]]:
    torch.manual_seed(3)
    module: Any = Calls(function)
    if wrapped:
        lamina.wrap_parameters(module, ScaledInt8Tensor.quantize)
    else:
        module.weight = nn.Parameter(ScaledInt8Tensor.quantize(module.weight.detach()))
    return module.weight, torch.compile(module, backend=backend, fullgraph=True) if backend else module


def loss_of(outputs: Any, used: set[int] | None = None) -> torch.Tensor:
    """A scalar to which each element of the ``used`` outputs contributes otherwise."""
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    total = torch.zeros(())
    for i, out in enumerate(outputs):
        if used is None or i in used:
            values = out.to_plain() if isinstance(out, WrapperTensor) else out
            total = total + (values.float() * torch.arange(1.0, 1 + values.numel()).view(values.shape)).sum()
    return total


def gradients(
    function: Function, wrapped: bool, backend: str | None, used: set[int] | None = None
) -> tuple[list[type], Any, Any]:
    parameter, call = parameter_and_call(function, wrapped, backend)
    x = torch.linspace(-1, 1, 24).reshape(3, 8).requires_grad_()
    for _ in range(2):  # the second accumulates
        outputs = call(x)
        loss_of(outputs, used).backward()
    kinds = [type(out) for out in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]
    return kinds, parameter.grad, x.grad


def assert_as_eager(
    function: Function, wrapped: bool, backend: str, used: set[int] | None = None, exact: bool = True
) -> None:
    kinds, wanted, wanted_x = gradients(function, wrapped, None, used)
    compiled_kinds, got, got_x = gradients(function, wrapped, backend, used)
    assert compiled_kinds == kinds
    assert type(got) is torch.Tensor
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert wanted.any()
    assert torch.equal(got, wanted) if exact else torch.allclose(got, wanted, rtol=1e-5)
    if wanted_x is None:  # compiled code gives zeros to an input that the loss doesn't depend on
        assert got_x is None or not got_x.any()
    else:
        assert torch.equal(got_x, wanted_x) if exact else torch.allclose(got_x, wanted_x, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does, for from_plain
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_gradients_are_plain_and_those_of_eager(name: str, wrapped: bool) -> None:
    assert_as_eager(RESULTS[name], wrapped, "aot_eager")


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("used", [{0}, {1}])
@pytest.mark.parametrize("name", ["two", "a list", "with a product"])
def test_backward_by_one_of_two_outputs(name: str, used: set[int], wrapped: bool) -> None:
    """Autograd hands zeros to the other one: plain ones."""
    assert_as_eager(RESULTS[name], wrapped, "aot_eager", used)


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [False, True])
def test_under_inductor(wrapped: bool) -> None:
    assert_as_eager(RESULTS["with a product"], wrapped, "inductor", exact=False)
    assert_as_eager(RESULTS["two"], wrapped, "inductor", {1}, exact=False)


@pytest.mark.parametrize("granularity", [PerTensor(), None])
def test_asymmetric_and_other_granularities(granularity: Any) -> None:
    recipe = {} if granularity is None else {"granularity": granularity}
    w = ScaledInt8Tensor.quantize(torch.randn(4, 8), symmetric=False, **recipe)
    p, q = nn.Parameter(w), nn.Parameter(w.clone())
    out = torch.compile(lambda p: p.bfloat16(), backend="aot_eager", fullgraph=True)(p)
    loss_of(out).backward()
    loss_of(q.bfloat16()).backward()
    assert out.zero_point is not None
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, q.grad)


def test_any_class_with_plain_gradients() -> None:
    p, q = (nn.Parameter(Doubled.from_plain(torch.arange(6.0).reshape(2, 3))) for _ in range(2))
    out = torch.compile(lambda p: p.clone(), backend="aot_eager", fullgraph=True)(p)
    assert type(out) is Doubled
    loss_of(out).backward()
    loss_of(q.clone()).backward()
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, q.grad)


def test_a_class_with_gradients_of_its_own_keeps_them() -> None:
    p = nn.Parameter(LoggingTensor(ScaledInt8Tensor.quantize(torch.randn(4, 8))))
    out = torch.compile(lambda p: p.clone(), backend="aot_eager", fullgraph=True)(p)
    assert type(out) is LoggingTensor
    loss_of(out).backward()
    assert type(p.grad) is LoggingTensor
    assert torch.equal(p.grad.to_plain(), torch.arange(1.0, 33).reshape(4, 8))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # Dynamo asks
@pytest.mark.parametrize("twice", [False, True])
def test_the_loss_may_be_compiled_too(twice: bool) -> None:
    """The result of one compiled function is the input of the next."""
    p, q = (nn.Parameter(ScaledInt8Tensor.quantize(torch.linspace(-1, 1, 32).reshape(4, 8))) for _ in range(2))
    first = torch.compile(lambda p: p.t().contiguous(), backend="aot_eager", fullgraph=True)
    second = torch.compile(lambda t, x: F.linear(x, t).square().sum(), backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 4)
    for _ in range(1 + twice):
        second(first(p), x).backward()
        F.linear(x, q.t().contiguous()).square().sum().backward()
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, q.grad)


def test_training_goes_on() -> None:
    """An optimizer takes the gradients; nothing compiles again."""
    counter = CompileCounterWithBackend("aot_eager")
    results = []
    for compiled in (False, True):
        torch.manual_seed(3)
        p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(4, 8)))
        function: Any = lambda p: p.t().contiguous()  # noqa: E731 - one of two
        call = torch.compile(function, backend=counter, fullgraph=True) if compiled else function
        optimizer = torch.optim.AdamW([p], lr=0.05)
        for step in range(4):
            optimizer.zero_grad()
            F.linear(torch.linspace(-1, 1, 4) + step, call(p)).square().sum().backward()
            optimizer.step()
        results.append(p.detach())
    assert torch.equal(results[0].qdata, results[1].qdata)
    assert torch.equal(results[0].scale, results[1].scale)
    assert counter.frame_count == 1


def test_a_gradient_handed_to_the_result_is_taken() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(4, 8)))
    out = torch.compile(lambda p: p.clone(), backend="aot_eager", fullgraph=True)(p)
    grad = torch.randn(4, 8)
    (got,) = torch.autograd.grad(out, p, grad)
    assert type(got) is torch.Tensor
    assert torch.equal(got, grad)


def test_hooks_see_plain_gradients() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(4, 8)))
    seen: list[type] = []
    p.register_hook(lambda grad: seen.append(type(grad)))
    out = torch.compile(lambda p: p.half(), backend="aot_eager", fullgraph=True)(p)
    out.register_hook(lambda grad: seen.append(type(grad)))
    loss_of(out).backward()
    assert seen == [torch.Tensor, torch.Tensor]


# the stand-in


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t + 1,
        lambda t: t @ t.t(),
        lambda t: t.t(),
        lambda t: t.view(-1),
        lambda t: t[0],
        lambda t: t.expand(2, 3, 3),
        lambda t: torch.cat([t, t]),
        lambda t: t.sum(),
    ],
)
def test_a_tangent_gives_plain_tensors(call: Callable[[Any], Any]) -> None:
    values = torch.arange(9.0).reshape(3, 3)
    out = call(Tangent(values))
    assert type(out) is torch.Tensor
    assert torch.equal(out, call(values))


def test_a_tangent_put_together_at_run_time_is_its_gradient() -> None:
    values = torch.randn(3)
    t = Tangent(values)
    assert type(t.detach()) is Tangent
    names, context = t.__tensor_flatten__()
    inner = {name: getattr(t, name) for name in names}
    assert Tangent.__tensor_unflatten__(inner, context, t.size(), t.stride()) is values


def test_what_stands_for_the_gradient_of_an_output() -> None:
    w = ScaledInt8Tensor.quantize(torch.randn(4, 8))
    tangent = w.__coerce_tangent_metadata__()
    assert type(tangent) is Tangent
    assert (tangent.shape, tangent.dtype) == (w.shape, w.dtype)
    assert torch.equal(tangent.gradient, w.dequantize())
    observer = LoggingTensor(torch.ones(2))
    assert observer.__coerce_tangent_metadata__() is observer
