"""Models by a factory: the decoders that are shipped, and the training step around any module."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lamina
from lamina.modes import FakeLikeMode
from lamina.modes.plan import Plan, Training, TrainingError, models
from lamina.modes.plan.alternatives import alternatives, devices_needed

SMALL = models.Sizes(width=64, layers=3, heads=4, key_heads=2, hidden=96, vocabulary=100)


def small() -> models.Decoder:
    return models.Decoder(SMALL)


def classifier() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))


class Pair(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [(models.llama_1b, 1_235_814_400), (models.llama_8b, 8_030_261_248), (models.llama_70b, 70_553_706_496)],
)
def test_the_sizes_are_those_of_llama_3(factory: Callable[[], nn.Module], parameters: int) -> None:
    with FakeLikeMode():
        assert sum(parameter.numel() for parameter in factory().parameters()) == parameters


def test_the_decoder_computes() -> None:
    model, tokens = small(), torch.randint(100, (2, 10))
    scores = model(tokens)
    assert scores.shape == (2, 10, 100)
    changed = tokens.clone()
    changed[:, 6:] = (tokens[:, 6:] + 1) % 100
    again = model(changed)
    torch.testing.assert_close(again[:, :6], scores[:, :6])  # attention sees what came before alone
    assert not torch.allclose(again[:, 6:], scores[:, 6:])
    F.cross_entropy(scores.flatten(0, 1), tokens.flatten()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_positions_are_relative() -> None:
    x = torch.randn(1, 1, 1, 16).expand(1, 1, 8, 16)
    turned = models.rotated(x, *models.angles(models.Sizes(64, 1, 4, 4, 1), x.squeeze(1)))
    products = (turned @ turned.mT).squeeze()
    torch.testing.assert_close(products.diagonal(1), products[0, 1].expand(7))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_a_step_of_a_training_under_way() -> None:
    plan = Training(small, (2, 16)).plan("cpu")
    parameters = sum(p.numel() for p in small().parameters())
    first = dict(zip(lamina.modes.plan.CATEGORIES, plan.moments[0].nbytes, strict=True))
    assert first["parameters"] == 4 * parameters
    assert first["optimizer state"] == 8 * parameters + 4 * len(list(small().parameters()))
    assert first["gradients"] == 0
    assert "gradients" in plan.by_category
    assert plan.flops_by("phase").keys() == {"forward", "backward"}


def test_dtypes_and_optimizers() -> None:
    halves = Training(small, (2, 16), "momentum", torch.bfloat16).plan()
    assert torch.get_default_dtype() == torch.float32
    parameters = sum(p.numel() for p in small().parameters())
    assert halves.moments[0].nbytes[:3] == (2 * parameters, 0, 2 * parameters)
    forward = Training(classifier, (7, 3, 4), "none").plan()
    assert forward.flops == 2 * 7 * 12 * 5
    assert forward.by_category["activations"] == 0
    assert {step.phase for step in forward.steps} == {"forward"}


def test_losses() -> None:
    class Own(nn.Linear):
        def loss(self, batch: Tensor) -> Tensor:
            return (self(batch) ** 2).sum()

    ops = [step.op for step in Training(partial(Own, 4, 4), (3, 4)).plan().steps]
    assert "aten::pow.Tensor_Scalar" in ops
    assert "aten::_log_softmax" in [step.op for step in Training(small, (2, 16)).plan().steps]
    assert "aten::mean" in [step.op for step in Training(classifier, (7, 3, 4)).plan().steps]


def test_checkpointing_keeps_the_blocks_inputs_alone() -> None:
    plain, less = (Training(small, (4, 64), checkpointing=again).plan() for again in (False, True))
    assert less.peak_bytes < 0.8 * plain.peak_bytes
    assert less.flops > plain.flops


def test_what_is_no_training() -> None:
    with pytest.raises(TrainingError, match="there are adamw, adam, sgd"):
        Training(small, (2, 16), "lion")
    with pytest.raises(TrainingError, match=r"not \(2, 0\)"):
        Training(small, (2, 0))
    with pytest.raises(TrainingError, match=r"not torch\.int8"):
        Training(small, (2, 16), dtype=torch.int8)
    with pytest.raises(TrainingError, match=r"makes no torch\.nn\.Module, but dict"):
        Training(dict, (2, 16)).plan()
    with pytest.raises(TrainingError, match="no list of equal blocks"):
        Training(classifier, (7, 3, 4), checkpointing=True).plan()
    with pytest.raises(TrainingError, match="no linear layers"):
        Training(lambda: nn.Embedding(3, 4), (7,), int8=True).plan()
    with pytest.raises(TrainingError, match="returns tuple"):
        Training(partial(Pair, 4, 4), (7, 4)).plan()


def test_what_would_make_it_fit() -> None:
    training = Training(small, (512, 64), checkpointing=False)
    device = lamina.modes.plan.Device("small", "cpu", 200 * 10**6, 10**9, {"float32": 10**9}, "none")
    lamina.modes.plan.DEVICES["small"] = device

    def planned(_: str, other: Training) -> Plan:
        return other.plan("small")

    try:
        plan = training.plan("small")
        ways = {way.name: way for way in alternatives(training, plan, planned)}
        assert list(alternatives(training, Training(small, (1, 64)).plan("small"), planned)) == []
    finally:
        del lamina.modes.plan.DEVICES["small"]
    assert plan.fits is False
    checkpointed = ways["checkpointing"]
    assert checkpointed.plan is not None
    assert checkpointed.plan.peak_bytes < plan.peak_bytes
    (smaller,) = [way for name, way in ways.items() if name.startswith("batch ")]
    assert smaller.plan is not None
    assert smaller.plan.fits
    size = smaller.training.batch[0]
    larger = Training(small, (math.ceil(size * 1.1), 64)).plan("cpu")
    assert larger.peak_bytes > device.memory  # no much larger batch would do
    assert devices_needed(plan) == 1


def test_a_batch_that_the_line_takes_for_small_enough_is_made_smaller() -> None:
    device = SimpleNamespace(memory=1000)

    def planned(_: str, training: Training) -> Any:
        size = training.batch[0]
        needed = 100 + 10 * size + (200 if 20 < size < 100 else 0)
        return SimpleNamespace(needed_bytes=needed, hardware=device, fits=needed <= 1000, peak_bytes=needed)

    training = Training(small, (100, 16), checkpointing=True, int8=True)
    (found,) = alternatives(training, planned("", training), planned)
    assert found.training.batch == (69, 16)  # 90 by the line, then a twentieth less until it fits


def test_70b_in_little_memory() -> None:
    """Built, and a step planned, in a process of its own: its resident memory stays under 1.5 GB."""
    script = """
import resource, torch
from lamina.modes.plan import Plan, Training, models
plan = Training(models.llama_70b, (1, 4096), "adamw", torch.bfloat16).plan("h200", allocator="caching")
print(plan.by_category["parameters"], plan.fits, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert out[:2] == [str(2 * 70_553_706_496), "False"]
    assert int(out[2]) < 1.5e9
