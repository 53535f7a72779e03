"""diff_logs: planted differences are found at the right operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lamina import Log, LoggingTensor, OpRecord, ScaledInt8Tensor, Selection
from lamina.modes import DispatchLog, diff_logs

LAYERS = 12


class Layer(nn.Module):
    """A linear layer, an activation, and whatever a test plants."""

    def __init__(self, plant: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.linear, self.plant = nn.Linear(8, 8), plant

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).relu()
        return y if self.plant is None else self.plant(y)


def model(plants: dict[int, Callable[[Tensor], Tensor]] | None = None, bump: int | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(*(Layer((plants or {}).get(index)) for index in range(LAYERS)))
    if bump is not None:
        with torch.no_grad():
            layers[bump].linear.bias[3] += 1e-3
    return layers


def records(layers: nn.Module, backward: bool = True) -> list[OpRecord]:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    with DispatchLog(Log(values="hash")) as log:
        out = layers(x)
        if backward:
            out.sum().backward()
    return log.records


def test_equal_runs_do_not_differ() -> None:
    assert diff_logs(records(model()), records(model())) is None


@pytest.mark.parametrize("at", [0, 5, 11])
def test_one_op_replaced(at: int) -> None:
    left = records(model({at: lambda y: y.sin()}))
    right = records(model({at: lambda y: y.cos()}))
    found = diff_logs(left, right)
    assert found is not None
    assert found.left is not None
    assert found.right is not None
    assert (found.kind, found.left.op, found.right.op) == ("op", "aten::sin", "aten::cos")
    assert found.left.module == str(at)
    assert left[found.index] == found.left
    assert "aten::relu" in [each.op for each in found.before]


@pytest.mark.parametrize("at", [0, 5, 11])
def test_one_dtype_changed(at: int) -> None:
    left = records(model({at: lambda y: y.to(torch.float64).to(torch.float32)}))
    right = records(model({at: lambda y: y.to(torch.bfloat16).to(torch.float32)}))
    found = diff_logs(left, right)
    assert found is not None
    assert found.left is not None
    assert (found.kind, found.left.op, found.left.module) == ("dtype", "aten::_to_copy", str(at))


@pytest.mark.parametrize("at", [0, 5, 11])
def test_one_value_changed_by_a_thousandth(at: int) -> None:
    found = diff_logs(records(model()), records(model(bump=at)))
    assert found is not None
    assert found.left is not None
    assert (found.kind, found.left.op, found.left.module) == ("value", "aten::addmm", f"{at}.linear")
    assert "digest" in str(found)
    assert json.loads(json.dumps(found.to_json()))["kind"] == "value"


def test_shapes_arguments_and_lengths() -> None:
    def logged(run: Callable[[], Any]) -> list[OpRecord]:
        with DispatchLog() as log:
            run()
        return log.records

    def kind(one: Callable[[], Any], other: Callable[[], Any]) -> str | None:
        found = diff_logs(logged(one), logged(other))
        return found and found.kind

    x = torch.ones(3, 4)
    assert kind(lambda: x.sum(0), lambda: x.sum(1)) == "shape"
    assert kind(lambda: x.add(1), lambda: x.add(2)) == "argument"
    assert kind(lambda: x.add(1), lambda: x.add(1).sin()) == "length"
    assert kind(lambda: x.add(1), lambda: x.add(1)) is None
    assert "(the log ends)" in str(diff_logs(logged(lambda: x.add(1)), []))


def test_values_are_compared_where_both_have_them() -> None:
    with DispatchLog() as plain:
        torch.ones(3).sin()
    with DispatchLog(Log(values="hash")) as hashed:
        torch.ones(3).sin()
    assert {each.digest for each in plain.records} == {None}
    assert None not in {each.digest for each in hashed.records}
    assert diff_logs(plain.records, hashed.records) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int8, torch.bool])
def test_a_digest_is_of_the_bits(dtype: torch.dtype) -> None:
    def digest(x: Tensor) -> str | None:
        with DispatchLog(Log(values="hash")) as log:
            x.clone()
        return log.records[0].digest

    x = torch.tensor([[1, 0, 1], [0, 0, 1]]).to(dtype)
    other = x.clone()
    other[1, 2] = 0
    assert digest(x) == digest(x.clone()) == digest(x.t().contiguous().t())
    assert digest(x) != digest(other)
    assert digest(torch.zeros(0, dtype=dtype)) is not None


def test_digests_of_wrappers_lists_and_nothing() -> None:
    x = torch.randn(4, 3)
    with DispatchLog(Log(values="hash")) as log:
        LoggingTensor(x).clone()
        x.clone()
        ScaledInt8Tensor.quantize(x).clone()
        torch._foreach_add_([x.clone()], 1.0)
        torch.ones(2, device="meta").add(1)
    by_op = [(each.op, each.digest) for each in log.records]
    clones = [digest for op, digest in by_op if op == "aten::clone"]
    assert clones[0] == clones[1] != clones[2]
    assert dict(by_op)["aten::_foreach_add_.Scalar"] is not None
    assert by_op[-1][1] is None


def test_bad_values() -> None:
    with pytest.raises(ValueError, match='None or "hash"'):
        Log(values="md5")  # type: ignore[arg-type]


def selected(**how: Any) -> list[tuple[str, str, str | None]]:
    log = Log(select=Selection(**how))
    with DispatchLog(log):
        model()(torch.ones(2, 8)).sum().backward()
    assert len(log) == len(log.records)
    return [(each.op, each.phase, each.module) for each in log.records]


def test_a_log_records_what_is_selected() -> None:
    every = selected()
    assert len(every) > 60
    assert selected(op="aten::*mm") == [each for each in every if each[0].endswith("mm")]
    assert selected(op=["aten::mm", "aten::relu"]) == [each for each in every if each[0] in ("aten::mm", "aten::relu")]
    assert selected(phase="backward") == [each for each in every if each[1] == "backward"]
    assert selected(module="3.*") == [each for each in every if (each[2] or "").startswith("3.")]
    relus = [each for each in every if each[0] == "aten::relu"]
    assert selected(op="aten::relu", every=5) == relus[::5]
    assert selected(op="aten::relu", limit=2) == relus[:2]
    assert selected(op="aten::relu", every=5, limit=2) == relus[:10:5]


def test_what_is_not_selected_costs_no_depth() -> None:
    log = Log(select=Selection(op="aten::sin"))
    with log:
        LoggingTensor(LoggingTensor(torch.ones(2))).sin().cos()
    assert [(each.op, each.depth) for each in log.records] == [("aten::sin", 0), ("aten::sin", 1)]


@pytest.mark.parametrize("wrong", [{"phase": "sideways"}, {"every": 0}, {"limit": 0}, {"phase": ["forward", "x"]}])
def test_bad_selections(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"phases are|1 or more"):
        Selection(**wrong)
