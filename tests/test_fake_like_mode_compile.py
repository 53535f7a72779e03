"""What is compiled for Inductor inside FakeLikeMode: FakeLike results, no data, and no code of Inductor's."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from test_plan_memory import GPT, Checkpointed, conv_net, floats, images, mlp, text
from torch import Tensor, nn

import lamina
from lamina import FakeLikeTensor
from lamina.modes import DispatchLog, FakeLikeMode

MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "MLP": (mlp, floats),
    "conv net": (conv_net, images),
    "GPT": (GPT, text),
    "GPT, checkpointed": (Checkpointed, text),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("model", MODELS)
def test_a_training_step_gives_what_the_eager_one_gives(model: str, device: str) -> None:
    """Dropout, batch normalization's running numbers, attention, and the zeros that a backward makes."""
    make, batch = MODELS[model]

    def train(compiled: bool) -> list[tuple[object, ...]]:
        trained = make()
        optimizer = torch.optim.AdamW(trained.parameters())
        run = torch.compile(trained, fullgraph=True) if compiled else trained
        for _ in range(2):
            inputs, targets = batch()
            scores = run(inputs).flatten(0, -2)
            F.cross_entropy(scores, targets.flatten()).backward()
            optimizer.step()
        made = [scores, *(p.grad for p in trained.parameters()), *trained.state_dict().values()]
        assert {type(each) for each in made if each.dim()} == {FakeLikeTensor}
        return [(each.shape, each.stride(), each.dtype, each.device) for each in made]

    with FakeLikeMode(device):
        assert train(compiled=True) == train(compiled=False)


def test_operators_on_functions_are_refused() -> None:
    """But for those that take a random state."""
    with FakeLikeMode("cuda"), pytest.raises((NotImplementedError, TypeError), match="cond"):
        torch.ops.higher_order.cond(torch.ones(1) > 0, torch.sin, torch.cos, (torch.ones(3),))


def test_without_gradients() -> None:
    with FakeLikeMode("cuda"), torch.no_grad():
        out = torch.compile(mlp())(floats()[0])
    assert (type(out), out.device) == (FakeLikeTensor, torch.device("cuda:0"))


def test_a_graph_makes_no_data() -> None:
    with FakeLikeMode("cuda"):
        model = nn.Sequential(nn.Linear(20000, 20000), nn.ReLU(), nn.Dropout(0.1))
        run = torch.compile(model)
        run(torch.randn(2, 20000)).sum().backward()  # what is imported, to compile
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(torch.randn(20000, 20000)).sum().backward()
    assert model[0].weight.grad.shape == (20000, 20000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 * 1024  # KiB; one of these tensors takes 1.5 GiB


def test_its_operators_are_those_of_inductors_decompositions() -> None:
    @torch.compile
    def activate(x: Tensor) -> Tensor:
        return F.gelu(x)

    with FakeLikeMode("cuda"), pytest.warns(lamina.modes.CompiledRegionWarning), DispatchLog() as log:
        activate(torch.ones(3))
    ops = [record.op for record in log.records]
    assert "aten::gelu" not in ops
    assert "aten::erf" in ops


def test_nested_modes() -> None:
    @torch.compile
    def double(x: Tensor) -> Tensor:
        return x * 2

    with FakeLikeMode("cuda:1"):
        with FakeLikeMode("cuda:2"):
            inner = double(torch.ones(3))
        outer = double(torch.ones(5))
    assert [each.device.index for each in (inner, outer)] == [2, 1]


def graphs_of_inductor(run: Callable[[Tensor], Tensor]) -> int:
    """How many graphs Inductor itself is asked to compile."""
    asked = []
    original = torch._TorchCompileInductorWrapper.__call__

    def call(self: object, graph: torch.fx.GraphModule, inputs: object) -> object:
        asked.append(graph)
        return graph.forward

    torch._TorchCompileInductorWrapper.__call__ = call  # type: ignore[method-assign,assignment]
    try:
        assert torch.equal(run(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        torch._TorchCompileInductorWrapper.__call__ = original  # type: ignore[method-assign]
    return len(asked)


def test_inductor_is_back_afterwards() -> None:
    @torch.compile
    def double(x: Tensor) -> Tensor:
        return x * 2

    before = torch._TorchCompileInductorWrapper.__call__
    with FakeLikeMode("cuda"):
        double(torch.ones(3))
    assert torch._TorchCompileInductorWrapper.__call__ is before
    assert graphs_of_inductor(double) == 1
    torch.compiler.reset()
    with pytest.raises(lamina.DataDependentError), FakeLikeMode("cuda"):
        double(torch.ones(3)).sum().item()
    assert graphs_of_inductor(double) == 1


def test_another_thread_has_inductor_meanwhile() -> None:
    @torch.compile
    def double(x: Tensor) -> Tensor:
        return x * 2

    original, found = torch._TorchCompileInductorWrapper.__call__, []

    def compiled_by(self: object, graph: torch.fx.GraphModule, inputs: object) -> object:
        found.append(threading.get_ident())
        return graph.forward

    torch._TorchCompileInductorWrapper.__call__ = compiled_by  # type: ignore[method-assign,assignment]
    try:
        with FakeLikeMode("cuda"):
            other = threading.Thread(target=lambda: double(torch.ones(3)))
            other.start()
            number = other.ident
            other.join()
            double(torch.ones(4))
    finally:
        torch._TorchCompileInductorWrapper.__call__ = original  # type: ignore[method-assign]
    assert found == [number]
