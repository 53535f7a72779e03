"""int8 tensors under, over and inside other wrappers: the same values, eager and compiled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from int8_recipes import RECIPES, quantized, values_of
from torch import nn, optim

from lamina import LoggingTensor, PerTensor, ScaledInt8Tensor


def in_itself(values: torch.Tensor, recipe: str) -> ScaledInt8Tensor:
    """Its scale is itself an int8 tensor, of logical float32."""
    q = quantized(values, recipe)
    scale = ScaledInt8Tensor.quantize(q.scale, PerTensor())
    return ScaledInt8Tensor(q.qdata, scale, q.zero_point, q.granularity, q.logical_dtype, q.rounding, q.activation)


KINDS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "logged": lambda v, recipe: LoggingTensor(quantized(v, recipe)),
    "logged twice": lambda v, recipe: LoggingTensor(LoggingTensor(quantized(v, recipe))),
    "of a logged": lambda v, recipe: quantized(LoggingTensor(v), recipe),
    "in itself": in_itself,
    "logged in itself": lambda v, recipe: LoggingTensor(in_itself(v, recipe)),
}
READS: dict[str, Callable[[Any], Any]] = {
    "t": lambda w: w.t(),
    "rows": lambda w: w[1:3],
    "columns": lambda w: w[:, 4:8],
    "flat": lambda w: w.view(-1),
    "cat": lambda w: torch.cat([w, w]),
    "stack": lambda w: torch.stack([w, w]),
    "index": lambda w: w[torch.tensor([1, 0])],
    "sum": lambda w: w + 1,
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda w: w.mul_(2),
    "row": lambda w: w[1].zero_(),
    "transposed": lambda w: w.t().add_(1.0),
    "columns": lambda w: w[:, 4:8].fill_(3.0),
    "copy_": lambda w: w.copy_(torch.ones(16, 8)),
    "element": lambda w: w.__setitem__((0, 0), 5.0),
}


def models(kind: str, recipe: str) -> tuple[Any, Any]:
    """One with such weights, and one with plain weights of the same values."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    plain = copy.deepcopy(model)
    for layer, other in ((model[0], plain[0]), (model[2], plain[2])):
        layer.weight = nn.Parameter(KINDS[kind](layer.weight.detach(), recipe))
        other.weight = nn.Parameter(values_of(layer.weight).clone())
    return model, plain


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_backward_are_those_of_the_values(kind: str, recipe: str) -> None:
    (model, plain), x = models(kind, recipe), torch.randn(3, 8)
    for m in (model, plain):
        m(x).square().sum().backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(values_of(a.grad), b.grad, rtol=1e-4, atol=1e-4)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(values_of(model(x)), plain(x))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_reads_and_writes(kind: str, recipe: str) -> None:
    w: Any = KINDS[kind](torch.randn(16, 8), recipe)
    values = values_of(w)
    for read in READS.values():
        torch.testing.assert_close(values_of(read(w)), read(values))
    for write in WRITES.values():
        target = w.clone()
        wanted = values_of(target).clone()
        write(target)
        write(wanted)
        # a step of the payload, and one of the scale where that is int8 too
        assert bool((values_of(target) - wanted).abs().max() <= 2 * wanted.abs().max() / 100)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_it_trains(way: dict[str, Any], kind: str, recipe: str) -> None:
    model, x = models(kind, recipe)[0], torch.randn(3, 8)
    cls, losses = type(model[0].weight), []
    optimizer = optim.AdamW(model.parameters(), lr=0.02, **way)
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(values_of(loss).item())
    assert losses[-1] < 0.9 * losses[0], losses
    assert type(model[0].weight) is cls


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_equals_eager(kind: str, recipe: str) -> None:
    model, x = models(kind, recipe)[0], torch.randn(3, 8)
    traced = copy.deepcopy(model)
    run = torch.compile(traced, backend="aot_eager", fullgraph=True)
    for call in (model, run):
        call(x).square().sum().backward()
    for a, b in zip(model.parameters(), traced.parameters(), strict=True):
        assert type(a.grad) is type(b.grad)
        torch.testing.assert_close(values_of(a.grad), values_of(b.grad))
    with torch.no_grad():
        torch.testing.assert_close(values_of(run(x)), values_of(model(x)))


@pytest.mark.parametrize("kind", KINDS)
def test_copied_pickled_loaded_converted(kind: str) -> None:
    model, plain = models(kind, "group asymmetric")
    w = model[0].weight
    for other in (copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        assert type(other) is type(w)
        assert torch.equal(values_of(other), values_of(w))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied[0].weight.zero_()
    copied.load_state_dict(model.state_dict())
    torch.testing.assert_close(values_of(copied[0].weight), values_of(w))
    copied.load_state_dict(plain.state_dict())
    assert type(copied[0].weight) is type(w)
    copied.half()
    assert copied[0].weight.dtype is torch.float16
