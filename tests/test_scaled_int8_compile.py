"""Compiled equals eager: values, gradients and their types, in-place updates; compiled once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from int8_recipes import RECIPES, addresses, assert_same_tensor, quantized, values_of
from torch import nn, optim
from torch._dynamo.testing import CompileCounterWithBackend

import lamina
from lamina import PerRow, ScaledInt8Tensor

CONSTRUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "quantize": ScaledInt8Tensor.quantize,
    "quantize with options": lambda x: ScaledInt8Tensor.quantize(x, PerRow(), torch.bfloat16),
    "from_plain": ScaledInt8Tensor.from_plain,
    "constructor": lambda x: ScaledInt8Tensor(x.to(torch.int8), x[:, :1].abs()),
}
USES: dict[str, Callable[[Any], Any]] = {
    "dequantize": lambda q: q.dequantize(),
    "requantize": lambda q: q.requantize(q.dequantize() * 3),
    "half": lambda q: q.half(),
    "t": lambda q: q.t(),
    "permute": lambda q: q.permute(1, 0),
    "contiguous": lambda q: q.t().contiguous(),
    "detach": lambda q: q.detach(),
    "clone": lambda q: q.clone(),
    "slice": lambda q: q[1:],
    "inner tensors": lambda q: q.qdata * q.scale,
    "arithmetic": lambda q: q * 2 + q,
    "linear": lambda q: F.linear(torch.ones(4, 5), q),
    "product": lambda q: torch.ones(4, 3) @ q,
    "in-place": lambda q: q.clone().mul_(2),
    "in-place on a view": lambda q: q.clone().t().mul_(torch.arange(1.0, 6).unsqueeze(1)),
    "plain.add_": lambda q: torch.zeros(3, 5).add_(q),
    "a context": lambda q: q.scale * (2 if q.granularity == PerRow() and q.logical_dtype is torch.float32 else 3),
}


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="aot_eager", fullgraph=True, **options)


def assert_equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    if isinstance(a, ScaledInt8Tensor):
        assert a.granularity == b.granularity
        assert torch.equal(a.qdata, b.qdata)
        assert torch.equal(a.scale, b.scale)
    else:
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does, for from_plain
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_making_one_in_the_graph(name: str) -> None:
    make, x = CONSTRUCTIONS[name], torch.randn(3, 5)
    assert_equal(compiled(make)(x), make(x))
    assert_equal(compiled(lambda x: make(x).dequantize() + 1)(x), make(x).dequantize() + 1)


@pytest.mark.parametrize("name", USES)
def test_using_one_in_the_graph(name: str) -> None:
    use, q = USES[name], ScaledInt8Tensor.quantize(torch.randn(3, 5))
    assert_equal(compiled(use)(q), use(q))


def test_writing_to_an_input() -> None:
    eager = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    traced = eager.clone()
    leaves = (traced.qdata.data_ptr(), traced.scale.data_ptr())

    def scale_up(q: Any, factor: torch.Tensor) -> Any:
        q.mul_(factor)
        q.t().add_(1)
        return q * 1

    factor = torch.randn(3, 1)
    assert_equal(compiled(scale_up)(traced, factor), scale_up(eager, factor))
    assert_equal(traced, eager)
    assert (traced.qdata.data_ptr(), traced.scale.data_ptr()) == leaves


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)
        for layer in (self.first, self.second):
            layer.weight = nn.Parameter(ScaledInt8Tensor.quantize(layer.weight.detach()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def assert_same_training(eager: nn.Module, traced: nn.Module, run: Callable[..., Any], *, exact: bool) -> None:
    """Two steps, with the gradients of input, weights and biases."""
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    for _ in range(2):
        results = []
        for model, call in ((eager, eager), (traced, run)):
            inputs = x.clone().requires_grad_()
            loss = F.cross_entropy(call(inputs), y)
            loss.backward()
            results.append([loss.detach(), inputs.grad, *(p.grad for p in model.parameters())])
            optim.SGD(model.parameters(), lr=0.1).step()
            model.zero_grad()
        assert [type(t) for t in results[1]] == [torch.Tensor] * len(results[1])
        for a, b in zip(*results, strict=True):
            # Inductor may reorder sums: at most 32 terms, twice, of 2^-24 each; then payloads may differ by a tie
            assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_model_trains_the_same() -> None:
    eager = Net()
    traced = copy.deepcopy(eager)
    assert_same_training(eager, traced, compiled(traced), exact=True)


@pytest.mark.slow
def test_a_model_trains_the_same_under_inductor() -> None:
    eager = Net()
    traced = copy.deepcopy(eager)
    assert_same_training(eager, traced, torch.compile(traced, fullgraph=True), exact=False)


def test_a_model_under_a_logging_layer_trains_the_same() -> None:
    eager = Net()
    for layer in (eager.first, eager.second):
        layer.weight = nn.Parameter(lamina.LoggingTensor(layer.weight.detach()))
    traced = copy.deepcopy(eager)
    run = compiled(traced)
    x = torch.randn(8, 16)
    for model, call in ((eager, eager), (traced, run)):
        call(x).sum().backward()
        assert type(model.first.weight) is lamina.LoggingTensor
    for a, b in zip(eager.parameters(), traced.parameters(), strict=True):
        assert type(a.grad) is type(b.grad)
        assert torch.equal(a.grad, b.grad)


def test_compiled_once_and_again_for_another_recipe() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    call = torch.compile(F.linear, backend=backend, fullgraph=True)
    for _ in range(3):
        q = ScaledInt8Tensor.quantize(torch.randn(5, 7))
        call(torch.randn(4, 7), q)
    assert len(graphs) == 1
    call(torch.randn(4, 7).bfloat16(), ScaledInt8Tensor.quantize(torch.randn(5, 7), logical_dtype=torch.bfloat16))
    assert len(graphs) == 2


def test_batch_sizes_compile_once() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    q = ScaledInt8Tensor.quantize(torch.randn(5, 7))
    call = torch.compile(F.linear, backend=backend, fullgraph=True, dynamic=True)
    for size in (2, 3, 17):
        x = torch.randn(size, 7)
        assert torch.equal(call(x, q), F.linear(x, q))
    assert len(graphs) == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference(mode: Callable[[], Any]) -> None:
    net, x = Net(), torch.randn(8, 16)
    with mode():
        assert torch.equal(compiled(net)(x), net(x))


def test_a_nonfinite_row_reads_nan_where_nothing_can_be_checked() -> None:
    values = torch.tensor([[1.0, float("inf")], [1.0, 2.0]])
    back = compiled(lambda x: ScaledInt8Tensor.quantize(x).dequantize())(values)
    assert back.isnan().tolist() == [[True, True], [False, False]]


def test_the_optimizer_step_compiles() -> None:
    eager = Net()
    traced = copy.deepcopy(eager)
    for model, wrap in ((eager, lambda f: f), (traced, lambda f: torch.compile(f, backend="aot_eager"))):
        optimizer = optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        torch.manual_seed(5)
        x = torch.randn(8, 16)
        model(x).pow(2).sum().backward()
        wrap(optimizer.step)()
    for a, b in zip(eager.parameters(), traced.parameters(), strict=True):
        assert torch.allclose(a.dequantize() if isinstance(a, ScaledInt8Tensor) else a, b.detach() + 0, atol=1e-6)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "t": lambda q: q.t(),
    "rows": lambda q: q[1:3],
    "every other row": lambda q: q[::2],
    "columns": lambda q: q[:, 4:8],
    "row": lambda q: q[1],
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda q: q.mul_(2),
    "row": lambda q: q[1].mul_(2),
    "columns": lambda q: q[:, 4:8].fill_(3.0),
    "transposed": lambda q: q.t().add_(1.0),
    "flat": lambda q: q.view(-1).mul_(2),
    "element": lambda q: q.__setitem__((0, 0), 5.0),
    "piece": lambda q: q.chunk(2)[1].fill_(1.0),
    "copy_": lambda q: q.copy_(torch.arange(32.0).view(4, 8)),
    "foreach": lambda q: torch._foreach_add_([q, torch.zeros(2)], 1.0),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_that_are_returned_alias_the_input(name: str, recipe: str) -> None:
    q = quantized(torch.randn(4, 8), recipe)
    got, wanted = compiled(VIEWS[name])(q), VIEWS[name](q)
    assert_same_tensor(got, wanted)
    q.fill_(7.0)
    assert torch.equal(values_of(got), values_of(wanted))
    got.fill_(3.0)
    # a view whose scale is shared is rounded with what is outside it: a step of 7 / 127, or one drawn
    assert bool((values_of(VIEWS[name](q)) - 3).abs().max() <= 7 / 127)


@pytest.mark.parametrize("recipe", ["row", "group asymmetric", "tensor"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_an_input_and_its_views(name: str, recipe: str) -> None:
    eager = quantized(torch.randn(4, 8), recipe)
    traced = eager.clone()
    leaves = addresses(traced)

    def write(q: Any) -> Any:
        WRITES[name](q)
        return q * 1

    torch.testing.assert_close(compiled(write)(traced), write(eager))
    assert_same_tensor(traced, eager)
    assert addresses(traced) == leaves


@pytest.mark.parametrize("recipe", RECIPES)
def test_equal_recipes_share_a_graph_and_training_keeps_it(recipe: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    call, x = torch.compile(F.linear, backend=counter, fullgraph=True), torch.randn(3, 8)
    q = quantized(torch.randn(4, 8), recipe)
    for weight in (q, q.clone(), copy.deepcopy(q), quantized(torch.randn(4, 8), recipe), q.mul_(2)):
        call(x, weight)
    assert counter.frame_count == 1
    for changed in ({"granularity": lamina.PerGroup(2)}, {"activation": "int8"}):
        before = counter.frame_count
        for _ in range(2):
            call(x, quantized(torch.randn(4, 8), recipe, **changed))
        assert counter.frame_count == before + 1
    counter = CompileCounterWithBackend("aot_eager")
    layer = nn.Linear(8, 4)
    layer.weight = nn.Parameter(q)
    step, run = optim.AdamW(layer.parameters()).step, torch.compile(layer, backend=counter, fullgraph=True)
    for _ in range(3):
        run(x).square().sum().backward()
        step()
    assert counter.frame_count == 1
