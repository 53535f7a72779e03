"""Plans of compiled steps: what their graphs save for the backward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lamina
from lamina.modes.plan import CATEGORIES, Plan

WIDTH, BATCH, BLOCKS = 64, 1000, 4
ACTIVATION = 4 * WIDTH * BATCH


def step(backend: str | None, *, again: bool = False) -> None:
    blocks = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(BLOCKS))
    )

    def loss(x: Tensor) -> Tensor:
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x.sum()

    run = torch.compile(loss, backend=backend, fullgraph=True) if backend else loss
    for _ in range(2):
        run(torch.empty(BATCH, WIDTH)).backward()
        blocks.zero_grad()


def saved(plan: Plan) -> int:
    """The most activations at any time."""
    return max(moment.nbytes[CATEGORIES.index("activations")] for moment in plan.moments)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_compiled_step_saves_what_the_eager_one_does(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a plan sees all of compiled code that it runs
        eager, compiled = (lamina.plan_step(partial(step, backend), device=device) for backend in (None, "aot_eager"))
    # each block's second linear layer and GELU keep what they are given; and the first the block's input
    assert saved(eager) == saved(compiled) == (3 * BLOCKS - 1) * ACTIVATION + 4
    assert (eager.compiled_calls, compiled.compiled_calls) == (0, 2)
    assert compiled.flops == eager.flops
    assert compiled.elsewhere == {}
    assert "compiled code ran 2 times" in compiled.summary()


def test_checkpointing_inside_of_compiled_code() -> None:
    plain, less = (lamina.plan_step(partial(step, "aot_eager", again=again)) for again in (False, True))
    assert saved(less) <= (BLOCKS - 1 + 3) * ACTIVATION
    assert less.flops > plain.flops
    assert less.peak_bytes < 0.7 * plain.peak_bytes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_inductor_is_planned_by_what_it_saves(device: str) -> None:
    """It computes the blocks' inner activations anew with checkpointing, and cheap operators in any case."""
    plain, less = (lamina.plan_step(partial(step, "inductor", again=again), device=device) for again in (False, True))
    partitioned = lamina.plan_step(partial(step, "aot_eager_decomp_partition", again=True), device=device)
    assert saved(plain) == (3 * BLOCKS - 1) * ACTIVATION + 4
    assert saved(less) == saved(partitioned) == (BLOCKS - 1) * ACTIVATION + 4
    assert (plain.compiled_calls, plain.inductor_graphs, partitioned.inductor_graphs) == (2, 1, 0)
    assert "1 graphs were for Inductor" in plain.summary()
    assert not any(step.op.startswith("aten::gelu") for step in plain.steps)  # decomposed, as for Inductor
    assert plain.to_json()["inductor_graphs"] == 1


def test_what_was_compiled_for_inductor_before() -> None:
    @torch.compile
    def double(x: Tensor) -> Tensor:
        return x * 2 + 1

    def step() -> None:
        double(torch.empty(1000))

    assert [lamina.plan_step(step).inductor_graphs for _ in range(2)] == [1, 0]  # it is compiled once


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
def test_the_partitioner_computes_cheap_operators_anew(backend: str) -> None:
    def loss(x: Tensor) -> Tensor:
        return x.sin().cos().exp().sin().sum()

    def chain(run: Callable[[Tensor], Tensor]) -> None:
        run(torch.empty(BATCH, WIDTH, requires_grad=True)).backward()

    eager = lamina.plan_step(partial(chain, loss))
    compiled = lamina.plan_step(partial(chain, torch.compile(loss, backend=backend)))
    assert saved(eager) == 2 * ACTIVATION + 4  # those of the first sine and of the exponential
    assert saved(compiled) <= ACTIVATION + 4  # it computes them from the input
