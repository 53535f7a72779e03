"""A plan's peak against what the CPU allocator really gave out, by the profiler's memory events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import lamina

WIDTH, TOKENS, BATCH, VOCABULARY, HEADS = 64, 32, 8, 50, 4
OPTIMIZERS = {"SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9), "AdamW": torch.optim.AdamW}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.attend(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.narrow(F.gelu(self.widen(self.norm2(x))))
        return x + added


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.blocks(self.tokens(tokens) + self.places.weight)))
        return scores


def mlp() -> nn.Module:
    narrow = [nn.Linear(WIDTH, 500), nn.ReLU(), nn.LayerNorm(500), nn.Dropout(0.1)]
    return nn.Sequential(*narrow, nn.Linear(500, 500), nn.GELU(), nn.Linear(500, VOCABULARY))


def conv_net() -> nn.Module:
    first = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(16, VOCABULARY))


def floats() -> tuple[Tensor, Tensor]:
    return torch.randn(100, WIDTH), torch.randint(VOCABULARY, (100,))


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, 3, 32, 32), torch.randint(VOCABULARY, (BATCH,))


def text() -> tuple[Tensor, Tensor]:
    return torch.randint(VOCABULARY, (BATCH, TOKENS)), torch.randint(VOCABULARY, (BATCH, TOKENS))


def wrapped(wrap: Callable[[Tensor], Any]) -> nn.Module:
    def is_linear(name: str, module: nn.Module, _: nn.Parameter) -> bool:
        return isinstance(module, nn.Linear) and name.endswith("weight")

    return lamina.wrap_parameters(mlp(), wrap, where=is_linear)


class Checkpointed(GPT):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        scores: Tensor = self.head(self.norm(x))
        return scores


MODELS = {
    "MLP": (mlp, floats),
    "conv net": (conv_net, images),
    "GPT": (GPT, text),
    "GPT, checkpointed": (Checkpointed, text),
    "MLP, logged": (partial(wrapped, lamina.LoggingTensor), floats),
    "MLP, int8": (partial(wrapped, lamina.ScaledInt8Tensor.quantize), floats),
}


def train(model: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, Tensor]], optimizer: str) -> None:
    trained = model()
    updates = OPTIMIZERS[optimizer](trained.parameters())
    for _ in range(2):
        inputs, targets = batch()
        updates.zero_grad()
        F.cross_entropy(trained(inputs).flatten(0, -2), targets.flatten()).backward()
        updates.step()


def allocated(step: Callable[[], object]) -> int:
    """The most bytes alive that the step allocates, without the scratch memory that a convolution's kernel has given
    back when it returns."""
    step()  # what is allocated once
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        step()
    kineto = profiled.profiler.kineto_results
    kernels = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in kineto.events() if "mkldnn_conv" in e.name()]
    alive = most = 0
    for event in kineto.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            if not any(start <= event.start_ns() <= end for start, end in kernels):
                most = max(most, alive)
    return most


@contextmanager
def silent() -> Iterator[None]:
    with patch.dict(os.environ, {"KINETO_LOG_LEVEL": "99"}):
        yield


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_what_the_allocator_gave_out(model: str, optimizer: str) -> None:
    step = partial(train, *MODELS[model], optimizer)
    real, plan = allocated(step), lamina.plan_step(step)
    assert plan.peak_bytes == pytest.approx(real, rel=0.02)
