from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import lamina
from lamina.modes import CompiledRegionWarning, DispatchLog, OpCounter
from lamina.subclasses.logging_tensor import JsonLinesSink, Log


class Plus(lamina.WrapperTensor):
    """A wrapper that computes two operators for each addition."""

    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


@Plus.implements(torch.ops.aten.add.Tensor)
def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Plus:
    return Plus(torch.relu(op(self.elem, other, alpha=alpha)))


def ops(mode: DispatchLog) -> list[str]:
    return [record.op for record in mode.records]


def test_operators_are_seen_below_autograd_in_all_phases() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with DispatchLog() as mode:
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    assert mode.by_phase["forward"]["aten::addmm"] == 1
    assert mode.by_phase["backward"]["aten::mm"] == 1
    assert mode.by_phase["optimizer"] == {"aten::add_.Tensor": 2}
    assert {record.layer for record in mode.records} == {"dispatch"}
    assert len(mode) == sum(mode.counts.values()) == len(mode.records)
    assert json.loads(json.dumps(mode.to_json()))["by_phase"]["optimizer"] == {"aten::add_.Tensor": 2}
    assert "aten::addmm" in str(mode)


def test_values_and_gradients_are_those_of_the_plain_run() -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        return [loss, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]

    plain = run()
    with DispatchLog():
        watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_a_failed_operator_is_recorded_and_raised() -> None:
    with DispatchLog() as mode:
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(1)
    assert [(record.op, record.failed) for record in mode.records][2:] == [("aten::mm", True), ("aten::ones", False)]


def test_an_operator_on_a_wrapper_is_seen_once_with_the_wrapper() -> None:
    value = Plus(torch.ones(2))
    with DispatchLog() as mode, OpCounter() as counter:
        value + 1
    assert ops(mode) == ["aten::add.Tensor"]  # not the relu inside
    assert mode.records[0].inputs[0].kind == "Plus"  # type: ignore[union-attr]
    assert counter.counts == {"aten::add.Tensor": 1}


def test_wrappers_are_constructed_and_printed_under_a_mode() -> None:
    with DispatchLog() as mode:
        value = Plus(torch.ones(2))
        assert repr(value) == "Plus(elem=tensor([1., 1.]))"
    assert "aten::ones" in ops(mode)


def test_modes_nest_and_each_sees_each_operator_once() -> None:
    with DispatchLog() as outer, DispatchLog() as inner:
        torch.ones(2).abs()
    assert ops(outer) == ops(inner) == ["aten::ones", "aten::abs"]


def test_what_arrives_whole_is_taken_apart_on_request() -> None:
    model, value = nn.Linear(3, 2), torch.ones(4, 3)
    with torch.inference_mode():
        expected = model(value)
        with DispatchLog() as whole:
            model(value)
        with DispatchLog(decompose=True) as apart:
            result = model(value)
        with OpCounter(decompose=True) as counter:
            model(value)
    assert torch.equal(result, expected)
    assert ops(whole) == ["aten::linear"]
    assert [(record.op, record.depth) for record in apart.records] == [
        ("aten::linear", 0),
        ("aten::t", 1),
        ("aten::addmm", 1),
    ]
    assert counter.counts == {"aten::linear": 1, "aten::t": 1, "aten::addmm": 1}


def test_composites_inside_composites_are_seen_once_a_level() -> None:
    with torch.inference_mode(), DispatchLog(decompose=True) as mode:
        torch.nn.functional.bilinear(torch.ones(2, 3), torch.ones(2, 3), torch.ones(1, 3, 3))
        torch.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2))
    levels = {record.op: record.depth for record in mode.records}
    assert levels["aten::einsum"] == 0
    assert levels["aten::bmm"] == 1
    assert mode.counts["aten::einsum"] == mode.counts["aten::bmm"] == 1


def test_an_error_inside_a_composite_leaves_the_mode_as_it_was() -> None:
    value, weight = torch.ones(2, 3), torch.ones(2, 2)
    with torch.inference_mode(), DispatchLog(decompose=True) as mode:
        with pytest.raises(RuntimeError):
            torch.nn.functional.linear(value, weight)
        torch.ones(1)
    assert (mode.records[0].op, mode.records[0].failed) == ("aten::linear", True)
    assert ops(mode)[-1] == "aten::ones"
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_higher_order_operators_pass() -> None:
    true, value = torch.tensor(True), torch.ones(2)
    with pytest.warns(CompiledRegionWarning), DispatchLog() as mode:  # torch.cond compiles its branches
        result = torch.cond(true, torch.sin, torch.cos, (value,))
    assert torch.equal(result, value.sin())
    assert ops(mode) == ["torch.ops.higher_order.cond"]


def test_a_log_of_ones_own_and_of_several_scopes(tmp_path: Any) -> None:
    log = Log(JsonLinesSink(tmp_path / "ops.jsonl"))
    mode = DispatchLog(log)
    for _ in range(2):
        with mode:
            torch.ones(1)
    assert len((tmp_path / "ops.jsonl").read_text().splitlines()) == 2
    assert mode.log is log


def test_marks_of_the_profiler_are_no_operators() -> None:
    with DispatchLog() as mode, torch.autograd.profiler.record_function("mark"):
        torch.ones(1)
    assert ops(mode) == ["aten::ones"]


def test_rich_is_loaded_only_to_print() -> None:
    import subprocess
    import sys

    script = "import sys, lamina.modes; assert 'rich' not in sys.modules and 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
