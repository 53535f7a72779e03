"""Optimizers on wrapped parameters: equal to the plain run, bit for bit, in values and in state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lamina

STEPS = 3
OPTIMIZERS = [
    cls
    for cls in vars(torch.optim).values()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
]
DENSE = [cls for cls in OPTIMIZERS if cls is not torch.optim.SparseAdam]
FUSED_ON_CPU = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad}
OPTIONS: dict[type, dict[str, Any]] = {
    torch.optim.SGD: {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    torch.optim.RMSprop: {"momentum": 0.9, "centered": True},
    torch.optim.LBFGS: {"max_iter": 4, "line_search_fn": "strong_wolfe"},
}


def has(cls: type, option: str) -> bool:
    return option in inspect.signature(cls).parameters


def variants() -> list[Any]:
    found = []
    for cls in DENSE:
        ways: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}] if has(cls, "foreach") else [{}]
        if cls in FUSED_ON_CPU:
            ways.append({"fused": True})
        found += [
            pytest.param(cls, way, id=f"{cls.__name__}-{'-'.join(k for k, v in way.items() if v)}") for way in ways
        ]
    return found


class Transparent(lamina.WrapperTensor):
    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


class Scaled(lamina.WrapperTensor):
    """Two inner tensors, decoded for every op without a rule."""

    values_: torch.Tensor
    scale: torch.Tensor
    fallback = lamina.Fallback.PLAIN
    gradients = lamina.Gradients.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor, **_: Any) -> Scaled:
        return cls(values * 2, torch.tensor(0.5))

    def decode(self) -> torch.Tensor:
        return self.values_ * self.scale


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))


def plain(value: Any) -> Any:
    return value.detach().to_plain() if isinstance(value, lamina.WrapperTensor) else value


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        batch, target = torch.randn(5, 6, generator=generator), torch.randn(5, 3, generator=generator)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (net(batch) - target).square().mean()  # noqa: B023 - called within this iteration
            loss.backward()
            return loss

        optimizer.step(closure)


def snapshot(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters, then each tensor of the optimizer's state, by parameter and name; numbers as tensors."""
    found = [plain(p) for p in net.parameters()]
    for parameter in net.parameters():
        found += tensors_of(optimizer.state[parameter])
    return [t.detach().clone() for t in found]


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [plain(value)]
    if isinstance(value, dict):
        return [t for key in sorted(value) for t in tensors_of(value[key])]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return [torch.tensor(value)] if isinstance(value, (int, float)) else []


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert type(a) is torch.Tensor
        assert torch.equal(a, e)


Make = Callable[[nn.Module], torch.optim.Optimizer]


def maker(cls: Any, way: dict[str, Any]) -> Make:
    return lambda net: cls(net.parameters(), **OPTIONS.get(cls, {}), **way)


def test_each_fused_optimizer_is_covered() -> None:
    def runs_fused(cls: Any) -> bool:
        net = model()
        try:
            train(net, cls(net.parameters(), fused=True), 1)
        except RuntimeError:
            return False
        return True

    assert {cls for cls in DENSE if has(cls, "fused") and runs_fused(cls)} == FUSED_ON_CPU


@pytest.mark.parametrize("wrapper", [Transparent, lamina.LoggingTensor])
@pytest.mark.parametrize(("cls", "way"), variants())
def test_an_optimizer_built_after_wrapping_trains_as_plain(wrapper: Any, cls: Any, way: dict[str, Any]) -> None:
    expected, net = model(), lamina.wrap_parameters(model(), wrapper)
    optimizers = [maker(cls, way)(m) for m in (expected, net)]
    start = snapshot(expected, optimizers[0])
    for m, optimizer in zip((expected, net), optimizers, strict=True):
        train(m, optimizer)
    assert all(type(p) is wrapper for p in net.parameters())
    assert all(type(p.grad) is wrapper for p in net.parameters())
    assert not torch.equal(snapshot(net, optimizers[1])[0], start[0])
    assert_same(snapshot(net, optimizers[1]), snapshot(expected, optimizers[0]))


@pytest.mark.parametrize(("cls", "way"), variants())
def test_an_optimizer_with_state_trains_on_through_wrapping_and_unwrapping(cls: Any, way: dict[str, Any]) -> None:
    expected, net = model(), model()
    optimizers = [maker(cls, way)(m) for m in (expected, net)]
    held = list(net.parameters())
    for change in (lambda m: m, lambda m: lamina.wrap_parameters(m, Transparent), lamina.unwrap_parameters):
        change(net)
        for m, optimizer in zip((expected, net), optimizers, strict=True):
            train(m, optimizer)
        assert_same(snapshot(net, optimizers[1]), snapshot(expected, optimizers[0]))
    assert all(a is b for a, b in zip(held, net.parameters(), strict=True))


@pytest.mark.parametrize(("cls", "way"), variants())
def test_a_decoding_class_trains_as_plain(cls: Any, way: dict[str, Any]) -> None:
    """Halves and doubles are exact, so that even a class which encodes and decodes is bit-equal."""
    expected, net = model(), lamina.wrap_parameters(model(), Scaled.encode)
    optimizers = [maker(cls, way)(m) for m in (expected, net)]
    for m, optimizer in zip((expected, net), optimizers, strict=True):
        train(m, optimizer)
    assert all(type(p) is Scaled and type(p.grad) is torch.Tensor for p in net.parameters())
    assert_same(snapshot(net, optimizers[1]), snapshot(expected, optimizers[0]))


@pytest.mark.parametrize(
    "way", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=lambda way: next(iter(way))
)
def test_partly_wrapped_parameters_train_in_one_group(way: dict[str, Any]) -> None:
    expected, net = model(), model()
    lamina.wrap_parameters(net, Transparent, where=lambda name, *_: name == "0.weight")
    optimizers = [torch.optim.AdamW(m.parameters(), **way) for m in (expected, net)]
    for m, optimizer in zip((expected, net), optimizers, strict=True):
        train(m, optimizer)
    assert [type(p.grad) for p in net.parameters()] == [Transparent, torch.Tensor]
    assert_same(snapshot(net, optimizers[1]), snapshot(expected, optimizers[0]))


@pytest.mark.parametrize("layers", [2, 3])
def test_nested_layers_train_as_plain(layers: int) -> None:
    expected, net = model(), model()
    for _ in range(layers):
        lamina.wrap_parameters(net, Transparent)
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (expected, net)]
    for m, optimizer in zip((expected, net), optimizers, strict=True):
        train(m, optimizer)
    assert_same(snapshot(net, optimizers[1]), snapshot(expected, optimizers[0]))


def test_state_of_the_optimizer_round_trips() -> None:
    expected, net = model(), lamina.wrap_parameters(model(), Transparent)
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (expected, net)]
    for m, optimizer in zip((expected, net), optimizers, strict=True):
        train(m, optimizer)
    again = torch.optim.AdamW(net.parameters())
    again.load_state_dict(copy.deepcopy(optimizers[1].state_dict()))
    train(expected, optimizers[0])
    train(net, again)
    assert_same(snapshot(net, again), snapshot(expected, optimizers[0]))


def test_clipping_and_accumulation_are_as_plain() -> None:
    expected, net = model(), lamina.wrap_parameters(model(), Transparent)
    for m in (expected, net):
        for scale in (1.0, 3.0):
            (m(torch.ones(2, 6)) * scale).sum().backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    for a, e in zip(net.parameters(), expected.parameters(), strict=True):
        assert type(a.grad) is Transparent
        assert torch.equal(plain(a.grad), e.grad)
