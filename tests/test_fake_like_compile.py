"""torch.compile inside FakeLikeMode: FakeLike results, and no data."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class WithFactories(nn.Module):
    """``device=x.device``, and a factory that names no device."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(8, device=x.device, dtype=x.dtype)
        return torch.relu(self.linear(x)) * positions + torch.ones(8)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))


def trained(make: Callable[[], nn.Module], device: str, backend: str) -> None:
    with FakeLikeMode(device):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(2):
            out = compiled(torch.ones(2, 8))
            out.sum().backward()
            optimizer.step()
    expected = torch.device("cuda:0" if device == "cuda" else device)
    for tensor in (out, *(p.grad for p in model.parameters())):
        assert type(tensor) is FakeLikeTensor
        assert tensor.device == expected
        assert type(tensor.meta) is torch.Tensor
        assert tensor.meta.is_meta


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_compiled_step_claims_what_the_eager_one_claims(device: str, backend: str) -> None:
    trained(plain, device, backend)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_factories_in_compiled_code_claim_the_right_device(device: str) -> None:
    trained(WithFactories, device, "aot_eager")


@pytest.mark.slow
def test_inductor_compiles_factories_on_the_cpu() -> None:
    trained(WithFactories, "cpu", "inductor")


def test_a_compiled_step_allocates_no_data() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with FakeLikeMode("cuda"):
        model = nn.Sequential(nn.Linear(20000, 20000), nn.GELU())
        out = torch.compile(model, backend="aot_eager")(torch.randn(20000, 20000))
        out.sum().backward()
    assert model[0].weight.grad.shape == (20000, 20000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 * 1024  # KiB; one of these tensors takes 1.5 GiB


def test_a_compiled_function_gives_several_fakes_of_their_own_dtypes() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.half().to(x.device), x.view(-1)

    with FakeLikeMode("cuda:1"):
        x = torch.ones(2, 3)
        half, flat = step(x)
    assert (half.dtype, half.device, flat.shape) == (torch.float16, x.device, (6,))
