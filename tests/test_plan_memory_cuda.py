"""A plan's peak against what the GPU's allocator really gave out."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_plan_memory import GPT, OPTIMIZERS, VOCABULARY, conv_net, mlp
from torch import nn

import lamina
from lamina.modes.plan.models import Decoder, Sizes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

DECODER = Sizes(width=256, layers=4, heads=4, key_heads=2, hidden=512, vocabulary=VOCABULARY)
MODELS = {
    "MLP": (mlp, (20_000, 64)),
    "conv net": (conv_net, (200, 3, 64, 64)),
    "GPT": (GPT, (500, 32)),
    "decoder": (partial(Decoder, DECODER), (16, 512)),
}


def train(model: str, optimizer: str) -> None:
    """Three steps, all that they need made in them."""
    make, shape = MODELS[model]
    with torch.device("cuda"):
        trained: nn.Module = make().bfloat16() if model == "decoder" else make()
        updates = OPTIMIZERS[optimizer](trained.parameters())
        for _ in range(3):
            inputs = torch.zeros(shape, dtype=torch.int64 if len(shape) == 2 and model != "MLP" else None)
            scores = trained(inputs).flatten(0, -2)
            updates.zero_grad()
            F.cross_entropy(scores.float(), torch.zeros(len(scores), dtype=torch.int64)).backward()
            updates.step()


def allocated(step: partial[None]) -> int:
    """The most bytes over those that stay, such as the libraries' workspaces."""
    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_what_the_gpu_gave_out(model: str, optimizer: str) -> None:
    step = partial(train, model, optimizer)
    plan = lamina.plan_step(step, device="cuda", allocator="caching")
    assert plan.peak_bytes == pytest.approx(allocated(step), rel=0.05)
