"""Adafactor inside FakeLikeMode: the norms that its computation reads are known, and no other number is."""

from __future__ import annotations

import threading
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import lamina
from lamina.modes import FakeLikeMode

HOW = pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])


def weight() -> nn.Parameter:
    made = nn.Parameter(torch.ones(4, 3))
    made.grad = torch.ones(4, 3)
    return made


def ratios(made: nn.Parameter, foreach: bool) -> list[tuple[str, tuple[int, ...]]]:
    optimizer = torch.optim.Adafactor([made], foreach=foreach)
    for _ in range(2):
        optimizer.step()
    return [(name, tuple(each.shape)) for name, each in optimizer.state[made].items()]


@HOW
def test_it_keeps_the_state_of_the_real_one(foreach: bool) -> None:
    expected = ratios(weight(), foreach)
    for device in ("cpu", "cuda"):
        with FakeLikeMode(device):
            assert ratios(weight(), foreach) == expected


@HOW
def test_of_wrapped_parameters(foreach: bool) -> None:
    with FakeLikeMode("cuda"):
        layer = lamina.wrap_parameters(nn.Linear(3, 4, bias=False), lamina.LoggingTensor)
        layer(torch.ones(2, 3)).sum().backward()
        assert [name for name, _ in ratios(layer.weight, foreach)] == ["step", "row_var", "col_var"]


def read(number: torch.Tensor) -> Any:
    return number.item()


def test_a_number_that_is_read_elsewhere_has_no_value() -> None:
    there = FunctionType(read.__code__.replace(co_filename=str(torch.optim._adafactor.__file__)), {})
    with FakeLikeMode("cuda"):
        made = weight()
        optimizer = torch.optim.Adafactor([made])
        norm = made.norm(2)
        with pytest.raises(lamina.DataDependentError):
            there(norm)
        with pytest.raises(lamina.DataDependentError):
            made.norm(2).item()
        with pytest.raises(lamina.DataDependentError):  # the closure runs inside the step
            optimizer.step(lambda: made.norm(2).item())
        optimizer.step()
        with pytest.raises(lamina.DataDependentError):
            norm.item()


class Reads(TorchFunctionMode):
    """Reads, in each call of one function, what that gives."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.calls = function, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is self.function:
            self.calls += 1
            result.sum().item()
        return result


@HOW
@pytest.mark.parametrize("function", [torch.Tensor.norm, torch.norm])
def test_what_others_read_during_its_computation_has_no_value(foreach: bool, function: Any) -> None:
    with FakeLikeMode("cuda"):
        optimizer = torch.optim.Adafactor([weight()], foreach=foreach)
        with Reads(function) as reads:
            try:
                optimizer.step()
            except lamina.DataDependentError:
                return
    assert function is torch.norm, "no number is known to others"
    assert torch.__version__ >= "2.14", "Tensor.norm calls torch.norm in older ones"
    assert not reads.calls


def test_a_real_one_is_as_ever_meanwhile() -> None:
    def update() -> torch.Tensor:
        made = weight()
        torch.optim.Adafactor([made], lr=0.5).step()
        return made.detach()

    expected, found = update(), []
    with FakeLikeMode("cuda"):
        elsewhere = threading.Thread(target=lambda: found.append(update()))
        elsewhere.start()
        elsewhere.join()
    assert torch.equal(found[0], expected)
    assert torch.equal(update(), expected)
    assert torch.optim._adafactor.adafactor.__name__ == "adafactor"
