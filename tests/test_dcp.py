"""torch.distributed.checkpoint saves and loads models with wrapped parameters, bit for bit, in a world of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from subjects import Clear, Scaled
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import lamina
from lamina import LoggingTensor, ScaledInt8Tensor

WRAPS: dict[str, Any] = {
    "one tensor": Clear,
    "two tensors": Scaled.from_plain,
    "log": LoggingTensor,
    "int8": ScaledInt8Tensor.quantize,
    "asymmetric groups": lambda t: ScaledInt8Tensor.quantize(t, lamina.PerGroup(2), symmetric=False),
    "log of int8": lambda t: LoggingTensor(ScaledInt8Tensor.quantize(t)),
}
pytestmark = pytest.mark.usefixtures("world")
each_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model(wrap: Any) -> nn.Module:
    made = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    return lamina.wrap_parameters(made, wrap, where=lambda name, *_: name.endswith("weight"))


def assert_same(one: nn.Module, other: nn.Module) -> None:
    """Both models hold the same bits in the same classes."""
    pairs = list(zip(one.state_dict().items(), other.state_dict().items(), strict=True))
    assert lamina.wrapped_parameters(one) == lamina.wrapped_parameters(other) != {}
    for (name, a), (_, b) in pairs:
        for x, y in zip(lamina.leaf_tensors(a), lamina.leaf_tensors(b), strict=True):
            assert torch.equal(x, y), name


@each_wrap
def test_a_state_dict(tmp_path: Path, wrap: Any) -> None:
    source, target = model(wrap), model(wrap)
    dcp.save(source.state_dict(), checkpoint_id=tmp_path)
    state = target.state_dict()
    dcp.load(state, checkpoint_id=tmp_path)
    target.load_state_dict(state)
    assert_same(source, target)


@each_wrap
def test_model_and_optimizer_go_on_as_before(tmp_path: Path, wrap: Any) -> None:
    def train(trained: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        trained(torch.linspace(-1, 1, 8).reshape(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    source, target = model(wrap), model(wrap)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (source, target)]
    train(source, optimizers[0])
    names = "model", "optimizer"
    dcp.save(dict(zip(names, get_state_dict(source, optimizers[0]), strict=True)), checkpoint_id=tmp_path)
    state: dict[str, Any] = dict(zip(names, get_state_dict(target, optimizers[1]), strict=True))
    dcp.load(state, checkpoint_id=tmp_path)
    set_state_dict(target, optimizers[1], model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert_same(source, target)
    train(source, optimizers[0])
    train(target, optimizers[1])
    assert_same(source, target)


@each_wrap
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_flattened_state_dict(tmp_path: Path, wrap: Any, asynchronous: bool) -> None:
    source, target = model(wrap), model(wrap)
    tensors, metadata = lamina.flatten_state_dict(source.state_dict())
    state: dict[str, Any] = {"tensors": tensors, "metadata": metadata}
    if asynchronous:
        dcp.async_save(state, checkpoint_id=tmp_path).result()
    else:
        dcp.save(state, checkpoint_id=tmp_path)
    state = dict(zip(state, lamina.flatten_state_dict(target.state_dict()), strict=True))
    dcp.load(state, checkpoint_id=tmp_path)
    target.load_state_dict(lamina.unflatten_state_dict(state["tensors"], state["metadata"]))
    assert_same(source, target)


# Scaled decodes, and has no rule for new_empty, of which torch makes the copy that it saves.
@pytest.mark.parametrize("wrap", [wrap for name, wrap in WRAPS.items() if name != "two tensors"])
def test_an_asynchronous_save(tmp_path: Path, wrap: Any) -> None:
    source, target = model(wrap), model(wrap)
    dcp.async_save(source.state_dict(), checkpoint_id=tmp_path).result()
    state = target.state_dict()
    dcp.load(state, checkpoint_id=tmp_path)
    target.load_state_dict(state)
    assert_same(source, target)
