"""What a plan says that Inductor's code saves for the backward, against what that code saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_plan_compiled import saved
from test_plan_memory import GPT, Checkpointed, floats, mlp, text
from torch import Tensor, nn

import lamina

MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "MLP": (mlp, floats),
    "GPT": (GPT, text),
    "GPT, checkpointed": (Checkpointed, text),
}
STATE = torch.get_rng_state().nbytes


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def planned(name: str, backend: str = "inductor") -> lamina.modes.plan.Plan:
    make, batch = MODELS[name]

    def step() -> None:
        torch.compile(partial(loss, make()), backend=backend, fullgraph=True)(*batch()).backward()

    return lamina.plan_step(step)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_inductor_saves(name: str) -> None:
    make, batch = MODELS[name]
    model, (inputs, targets) = make(), batch()
    result = torch.compile(partial(loss, model), fullgraph=True)(inputs, targets)
    assert result.grad_fn is not None
    there_before = [t.untyped_storage() for t in (inputs, targets, *model.parameters(), *model.buffers())]
    keys = {storage.data_ptr() for storage in there_before}
    held = {t.data_ptr(): t for t in (each.untyped_storage() for each in result.grad_fn.saved_tensors)}
    real = sum(storage.nbytes() for key, storage in held.items() if key not in keys)
    start = 4  # the gradient of the loss
    assert saved(planned(name)) == real + start


def test_recomputed_attention_runs_from_a_state_that_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It draws random numbers, for all torch knows; the operator itself is seen, twice in each block."""
    plan = planned("GPT, checkpointed", "aot_eager")
    attentions = [step for step in plan.steps if step.op == "aten::_scaled_dot_product_flash_attention_for_cpu"]
    assert [step.phase for step in attentions] == 3 * ["forward"] + 3 * ["backward"]
    eager = lamina.plan_step(lambda: loss(Checkpointed(), *text()).backward())
    assert plan.flops_by("op")[attentions[0].op] == eager.flops_by("op")[attentions[0].op]
    monkeypatch.setattr("lamina.modes.fake.random_state._CPUS", 0)
    torch.compiler.reset()
    assert saved(plan) - saved(planned("GPT, checkpointed", "aot_eager")) == 3 * STATE
