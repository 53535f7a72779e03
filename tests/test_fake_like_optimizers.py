"""All of PyTorch's optimizers without data: their state is that of the real ones, or they say why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import lamina
from lamina.modes import FakeLikeMode

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def _state_of(name: str, options: dict[str, Any]) -> list[Any]:
    weights = [nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(3, 4))]
    optimizer = getattr(torch.optim, name)(weights, **options)
    for _ in range(3):
        optimizer.zero_grad()
        (weights[0] @ weights[1]).sum().backward()
        optimizer.step()
    states = [optimizer.state[weight].items() for weight in weights]
    return [
        (key, each.shape, each.stride(), each.dtype, each.device)
        for state in states
        for key, each in state
        if isinstance(each, torch.Tensor)
    ]


# Not SparseAdam, which takes sparse gradients.
OPTIMIZERS = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax Muon NAdam RAdam RMSprop Rprop SGD".split()
VARIANTS: dict[str, dict[str, Any]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"foreach": False, "capturable": True},
    "capturable, foreach": {"foreach": True, "capturable": True},
    "default": {},
    "maximize": {"maximize": True},
    "amsgrad": {"amsgrad": True},
    "weight decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "centered": {"centered": True, "momentum": 0.9},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", VARIANTS)
def test_every_optimizer_keeps_the_state_of_the_real_one(name: str, how: str) -> None:
    options = VARIANTS[how]
    if name == "ASGD" and not options.get("capturable"):
        pytest.skip("reads its step from the device")
    try:
        expected = _state_of(name, options)
    except (TypeError, RuntimeError) as error:
        if "unexpected keyword" not in str(error) and "`fused=True` requires" not in str(error):
            raise
        pytest.skip("has no such option")
    except AssertionError:  # capturable, on the CPU
        with FakeLikeMode("cpu"), pytest.raises(AssertionError, match="capturable"):
            _state_of(name, options)
        expected = None
    else:
        with FakeLikeMode("cpu"):
            assert _state_of(name, options) == expected
    if (name, how) == ("Adagrad", "fused") and VERSION < (2, 13):
        return  # fused on the CPU alone
    with FakeLikeMode("cuda"):
        on_cuda = _state_of(name, options)
    assert on_cuda or name == "SGD"
    if expected is not None:
        assert [each[:-1] for each in on_cuda] == [each[:-1] for each in expected]
    if options.get("capturable"):
        assert {str(each[-1]) for each in on_cuda} == {"cuda:0"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_optimizers_that_decide_by_values_say_so(device: str) -> None:
    with FakeLikeMode(device):
        weight = nn.Parameter(torch.ones(4, 3))
        weight.grad = torch.ones(4, 3)
        for foreach in (False, True):
            with pytest.raises(lamina.DataDependentError, match=r"ASGD chooses by its step.*capturable=True"):
                torch.optim.ASGD([weight], foreach=foreach).step()
        with pytest.raises(lamina.DataDependentError, match="LBFGS decides by the loss"):
            torch.optim.LBFGS([weight]).step(weight.sum)
        with pytest.raises(lamina.DataDependentError, match=r"item\(\), bool\(\)"):
            weight.sum().item()
