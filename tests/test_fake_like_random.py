"""Random operators on FakeLikeTensors draw nothing: the program's generators stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode
from lamina.subclasses.fake_like.zeros import on_zeros


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
    return FakeLikeTensor.from_tensor(torch.ones(shape, dtype=dtype), device)


DRAWS: dict[str, Callable[[str], Any]] = {
    "rand_like": lambda d: torch.rand_like(fake(3, device=d)),
    "randn_like": lambda d: torch.randn_like(fake(3, device=d)),
    "randint_like": lambda d: torch.randint_like(fake(3, device=d), 5),
    "normal_": lambda d: fake(3, device=d).normal_(),
    "uniform_": lambda d: fake(3, device=d).uniform_(),
    "bernoulli": lambda d: torch.bernoulli(fake(3, device=d)),
    "bernoulli_": lambda d: fake(3, device=d).bernoulli_(0.3),
    "exponential_": lambda d: fake(3, device=d).exponential_(),
    "geometric_": lambda d: fake(3, device=d).geometric_(0.5),
    "log_normal_": lambda d: fake(3, device=d).log_normal_(),
    "cauchy_": lambda d: fake(3, device=d).cauchy_(),
    "random_": lambda d: fake(3, device=d).random_(),
    "poisson": lambda d: torch.poisson(fake(3, device=d)),
    "binomial": lambda d: torch.binomial(fake(3, device=d), fake(3, device=d)),
    "multinomial": lambda d: torch.multinomial(fake(5, device=d), 2),
    "normal": lambda d: torch.normal(fake(3, device=d), 1.0),
    "dropout": lambda d: nn.functional.dropout(fake(3, device=d)),
    "native_dropout": lambda d: torch.native_dropout(fake(3, device=d), 0.5, True),
    "alpha_dropout": lambda d: nn.functional.alpha_dropout(fake(3, device=d), training=True),
    "feature_dropout": lambda d: nn.functional.dropout2d(fake(1, 3, 2, 2, device=d)),
    "rrelu": lambda d: nn.functional.rrelu(fake(3, device=d), training=True),
    "gumbel_softmax": lambda d: nn.functional.gumbel_softmax(fake(3, 3, device=d)),
    "dirichlet": lambda d: torch._sample_dirichlet(fake(3, device=d)),
    "standard_gamma": lambda d: torch._standard_gamma(fake(3, device=d)),
    "init": lambda d: nn.init.kaiming_uniform_(fake(3, 3, device=d)),
}


def states() -> tuple[bytes, bytes]:
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes()  # type: ignore[index, union-attr]  # noqa: NPY002


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_generators_stay_as_they_were(name: str, device: str) -> None:
    before = states()
    result = DRAWS[name](device)
    assert states() == before
    first = result[0] if isinstance(result, tuple) else result
    assert type(first) is FakeLikeTensor
    assert str(first.device) == device


def test_explicit_generators_too() -> None:
    generator = torch.Generator().manual_seed(3)
    before = states(), generator.get_state().tolist()
    fake(3).normal_(generator=generator)
    torch.multinomial(fake(5), 2, generator=generator)
    torch.bernoulli(fake(5), generator=generator)
    torch.poisson(fake(3), generator=generator)
    torch._standard_gamma(fake(3), generator=generator)
    with FakeLikeMode("cpu"):
        torch.randn(3, generator=generator)
        torch.randperm(5, generator=generator)
        torch.randint(0, 5, (3,), generator=generator)
        torch.normal(0.0, 1.0, (3,), generator=generator)
    assert (states(), generator.get_state().tolist()) == before


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        fake(3, device="cuda").normal_(generator=torch.Generator())
    with FakeLikeMode("cuda"), pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.randn(3, generator=torch.Generator())


def test_modules_are_initialized_without_drawing() -> None:
    before = states()
    with FakeLikeMode("cuda"):
        layer = nn.TransformerEncoderLayer(8, 2)
        layer(torch.rand(3, 2, 8))
        torch.randperm(5)
        torch.rand(3)
        torch.randint(5, (3,))
        nn.functional.fractional_max_pool2d(torch.ones(1, 1, 9, 9), 2, 4)
        torch.svd_lowrank(torch.ones(5, 5), 2)
    assert states() == before


def test_real_kernels_that_stand_for_a_fake_one_draw_nothing() -> None:
    generator = torch.Generator().manual_seed(3)
    before = states(), generator.get_state().tolist()
    for given in (generator, None):
        made = on_zeros(torch.ops.aten.rand_like.generator, [torch.ones(3)], {"generator": given}, lambda real: real)
        assert made.shape == (3,)
    assert (states(), generator.get_state().tolist()) == before
