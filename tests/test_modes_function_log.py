from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from lamina.modes import CompiledRegionWarning, DispatchLog, FunctionLog
from lamina.subclasses.logging_tensor import Log


def names(mode: FunctionLog) -> list[str]:
    return [record.op for record in mode.records]


def test_public_calls_are_seen_as_they_were_written() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with FunctionLog() as mode:
        model(torch.ones(2, 3)).sum().backward()
    assert names(mode) == [
        "torch.ones",
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
        "torch.Tensor.sum",
        "torch.Tensor.backward",
    ]
    assert {record.layer for record in mode.records} == {"function"}
    assert [record.module for record in mode.records] == [None, "0", "1", None, None]
    assert "aten::addmm" not in mode.counts
    json.dumps(mode.to_json(), allow_nan=False)


def test_arguments_show_as_they_were_given() -> None:
    with FunctionLog() as mode:
        torch.nn.functional.linear(torch.ones(2, 3), weight=torch.ones(4, 3))
    record = mode.records[-1]
    assert record.inputs[0].shape == (2, 3)  # type: ignore[union-attr]
    assert dict(record.keywords)["weight"].shape == (4, 3)  # type: ignore[union-attr]
    assert record.outputs[0].shape == (2, 4)  # type: ignore[union-attr]


def test_attributes_are_seen_on_request() -> None:
    value = torch.ones(2)
    with FunctionLog() as mode:
        _ = value.shape
    with FunctionLog(properties=True) as properties:
        _ = value.shape
    assert (names(mode), names(properties)) == ([], ["torch.Tensor.shape"])


def test_the_phases_of_a_training_step() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    model.weight.register_hook(torch.abs)
    with FunctionLog() as mode:
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert mode.by_phase["forward"]["torch.nn.functional.linear"] == 1
    assert mode.by_phase["backward"] == {}  # the hook runs inside the call of backward()
    assert mode.by_phase["optimizer"]["torch.Tensor.add_"] == 2
    assert not any(name.startswith("torch._C") for name in names(mode))


def test_a_failed_call_is_recorded_and_raised() -> None:
    with FunctionLog() as mode, pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert mode.records[-1].failed


def test_both_levels_in_one_log() -> None:
    log = Log()
    value, weight = torch.ones(2, 3), torch.ones(4, 3)
    with FunctionLog(log), DispatchLog(log):
        torch.nn.functional.linear(value, weight)
    assert [(record.op, record.depth) for record in log] == [
        ("torch.nn.functional.linear", 0),
        ("aten::t", 1),
        ("aten::mm", 1),
    ]


def test_tensors_are_printed_and_described_without_being_seen() -> None:
    class Shy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert func is not torch.Tensor.shape.__get__, "describing asked the tensor"  # type: ignore[attr-defined]
            return super().__torch_function__(func, types, args, kwargs or {})

    value = torch.ones(2).as_subclass(Shy)
    with FunctionLog() as mode:
        value.abs()
    assert names(mode) == ["torch.Tensor.abs"]


def test_compilation_happens_without_breaks_and_its_functions_do_not_show() -> None:
    def double(value: torch.Tensor) -> torch.Tensor:
        return torch.relu(value) * value.shape[0]

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(double, backend=counter, fullgraph=True)
    value = torch.ones(3)
    with pytest.warns(CompiledRegionWarning, match=r"2 times.*saw none of its functions"), FunctionLog() as mode:
        first, second = compiled(value), compiled(value)
    assert counter.frame_count == 1
    assert torch.equal(first, double(value))
    assert torch.equal(second, double(value))
    of_dynamo = {f"torch.Tensor.{name}" for name in ("stride", "size", "storage_offset")}  # torch 2.11
    assert set(names(mode)) - of_dynamo <= {"aten::relu", "aten::mul.Tensor"}  # what this backend calls
