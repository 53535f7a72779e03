from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch
from torch import nn

from lamina.modes import OpCounter


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def test_operators_are_counted_by_phase() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with OpCounter() as counter:
        step(model, optimizer)
    assert set(counter.by_phase) == {"forward", "backward", "optimizer"}
    assert counter.by_phase["forward"]["aten::addmm"] == 1
    assert counter.by_phase["backward"]["aten::mm"] == 1
    assert counter.by_phase["optimizer"] == {"aten::add_.Tensor": 2}
    assert counter.total == sum(counter.counts.values()) == sum(sum(p.values()) for p in counter.by_phase.values())
    plain = json.loads(json.dumps(counter.to_json()))
    assert plain["total"] == counter.total
    assert plain["counts"] == dict(counter.counts)
    assert plain["by_phase"]["optimizer"] == {"aten::add_.Tensor": 2}


def test_the_table_has_a_column_for_each_phase_and_sums() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with OpCounter() as counter:
        step(model, optimizer)
    lines = [line.split() for line in str(counter).splitlines()]
    assert lines[0] == ["op", "forward", "backward", "optimizer", "total"]
    assert ["aten::addmm", "1", "1"] in lines
    sums = [sum(counter.by_phase[phase].values()) for phase in ("forward", "backward", "optimizer")]
    assert lines[-1] == ["total", *map(str, sums), str(counter.total)]


def test_a_closure_of_a_step_counts_as_forward_and_backward() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def closure() -> Any:
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        return loss

    with OpCounter() as counter:
        optimizer.step(closure)
    assert counter.by_phase["forward"]["aten::addmm"] == 1
    assert counter.by_phase["backward"]["aten::mm"] == 1
    assert counter.by_phase["optimizer"] == {"aten::add_.Tensor": 2}


def test_counting_goes_on_when_entered_again_and_counts_failures() -> None:
    counter = OpCounter()
    for _ in range(2):
        with counter:
            torch.ones(1)
    with counter, pytest.raises(RuntimeError):
        torch.mm(torch.ones(1, 2), torch.ones(1, 2))
    assert counter.counts == {"aten::ones": 4, "aten::mm": 1}


def test_the_operators_of_other_threads_are_not_seen() -> None:
    with OpCounter() as counter:
        thread = threading.Thread(target=torch.ones, args=(1,))
        thread.start()
        thread.join()
    assert counter.total == 0


def test_results_under_the_counter_are_bit_equal() -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            step(model, optimizer)
        return list(model.parameters())

    plain = train()
    with OpCounter():
        counted = train()
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
