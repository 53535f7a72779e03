from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils.checkpoint import checkpoint

from lamina.modes import DispatchLog
from lamina.subclasses.logging_tensor.module_path import module_path


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = torch.relu(layer(value))
        return value


class Model(nn.Module):
    def __init__(self, recompute: bool | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.recompute = Encoder(), nn.Linear(3, 2), recompute

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if self.recompute is None:
            value = self.encoder(value)
        else:
            value = checkpoint(self.encoder, value, use_reentrant=self.recompute)  # type: ignore[assignment]
        result: torch.Tensor = self.head(value * 2)
        return result


def paths(mode: DispatchLog, op: str, phase: str) -> list[str | None]:
    return [record.module for record in mode.records if record.op == op and record.phase == phase]


def test_forward_and_backward_name_the_module() -> None:
    model = Model()
    with DispatchLog() as mode:
        model(torch.ones(4, 3)).sum().backward()
    layers = ["encoder.layers.0", "encoder.layers.1", "head"]
    assert paths(mode, "aten::addmm", "forward") == layers
    assert paths(mode, "aten::relu", "forward") == ["encoder", "encoder"]
    assert paths(mode, "aten::mul.Tensor", "forward") == ["Model"]
    assert paths(mode, "aten::sum", "forward") == [None]
    assert paths(mode, "aten::mul.Tensor", "backward") == ["Model"]
    assert paths(mode, "aten::threshold_backward", "backward") == ["encoder", "encoder"]
    assert list(dict.fromkeys(paths(mode, "aten::mm", "backward"))) == layers[::-1]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_names_the_module(use_reentrant: bool) -> None:
    model = Model(recompute=use_reentrant)
    with DispatchLog() as mode:
        model(torch.ones(4, 3, requires_grad=True)).sum().backward()
    recomputed = paths(mode, "aten::addmm", "backward")
    assert [path and path.removeprefix("encoder.") for path in recomputed] == ["layers.0", "layers.1"]
    assert len(paths(mode, "aten::threshold_backward", "backward")) == 2
    assert None not in paths(mode, "aten::threshold_backward", "backward")


def test_a_module_that_raises_is_left() -> None:
    class Failing(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    with DispatchLog() as mode:
        with pytest.raises(ValueError, match="no"):
            nn.Sequential(nn.ReLU(), Failing())(torch.ones(2))
        torch.ones(2).abs()
    assert paths(mode, "aten::abs", "forward") == [None]


def test_modules_outside_the_tree_and_modules_added_later() -> None:
    class Calls(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = nn.Softmax(dim=0)(value)
            return result

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Calls()

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.inner(value)
            return self.late(value) if hasattr(self, "late") else value  # type: ignore[operator, no-any-return]

    root = Root()
    with DispatchLog() as mode:
        root(torch.ones(2))
        root.late = nn.Tanh()
        root(torch.ones(2))
    assert paths(mode, "aten::_softmax", "forward") == ["inner.Softmax", "inner.Softmax"]
    assert paths(mode, "aten::tanh", "forward") == ["late"]


def test_a_backward_called_inside_a_module_is_not_of_that_module() -> None:
    class Trainer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(3, 2)

        def forward(self, value: torch.Tensor) -> None:
            self.model(value).sum().backward()

    with DispatchLog() as mode:
        Trainer()(torch.ones(4, 3))
    assert set(paths(mode, "aten::mm", "backward")) == {"model"}


def test_operators_without_a_node_take_no_name_away() -> None:
    class Leaves(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value.detach().abs()
            return value

    model = nn.Sequential(nn.Linear(3, 3), Leaves())
    with DispatchLog() as mode:
        model(torch.ones(2, 3)).sum().backward()
    assert set(paths(mode, "aten::mm", "backward")) == {"0"}


def test_threads_do_not_mix() -> None:
    seen: list[str | None] = []

    class Threads(nn.Module):
        def forward(self) -> None:
            thread = threading.Thread(target=lambda: seen.append(module_path(makes_nodes=False)))
            thread.start()
            thread.join()
            seen.append(module_path(makes_nodes=False))

    Threads()()
    assert seen == [None, "Threads"]


def test_nothing_is_installed() -> None:
    def hooks() -> list[Any]:
        return [len(value) for name, value in vars(module_hooks).items() if name.startswith("_global_") and value]

    before = hooks()
    with DispatchLog():
        assert hooks() == before


def test_a_compiled_module_compiles_whole_and_does_not_warn() -> None:
    model = Model()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    value = torch.ones(4, 3)
    with pytest.warns(UserWarning, match="compiled code ran") as told, DispatchLog():
        result = compiled(value)
    assert len(told) == 1  # ours
    assert torch.equal(result, model(value))
