from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from lamina.modes import CompiledRegionWarning, DispatchLog, FunctionLog, OpCounter

MODES = [DispatchLog, FunctionLog, OpCounter]


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("kind", MODES)
def test_modules_compile_whole_under_a_mode_and_once(kind: Any) -> None:
    plain, model, value = make(), make(), torch.ones(5, 3)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    plain(value).sum().backward()

    def train() -> torch.Tensor:
        with kind():
            result: torch.Tensor = compiled(value)
            result.sum().backward()
        return result

    with pytest.warns(CompiledRegionWarning, match=f"{kind.__name__} \\(1 times\\)"):
        result = train()
    assert torch.equal(result, plain(value))
    for expected, got in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(expected.grad, got.grad)  # type: ignore[arg-type]

    for _ in range(2):
        compiled(value)
        with pytest.warns(CompiledRegionWarning), kind():
            compiled(value)
    assert counter.frame_count == (2 if kind is FunctionLog else 1)  # Dynamo guards on function modes: one more with it


def test_an_eager_backend_sends_each_operator_through_the_dispatcher() -> None:
    model = make()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.warns(CompiledRegionWarning, match="only what it sends through the dispatcher"), OpCounter() as counter:
        compiled(torch.ones(5, 3)).sum().backward()
    assert counter.by_phase["forward"]["aten::addmm"] == 2
    assert counter.by_phase["backward"]["aten::mm"] == 3


@pytest.mark.slow
def test_inductor_compiles_under_a_mode() -> None:
    model, value = make(), torch.ones(5, 3)
    torch.compile(torch.abs)(value)  # Inductor's import warns
    compiled = torch.compile(model, fullgraph=True)
    with pytest.warns(CompiledRegionWarning), OpCounter() as counter:
        result = compiled(value)
    torch.testing.assert_close(result, model(value))
    assert "aten::relu" not in counter.counts  # it is fused


def test_the_warning_comes_once_a_scope_and_not_over_an_error() -> None:
    compiled = torch.compile(torch.abs, backend="aot_eager")
    value = torch.ones(2)

    def run(error: Exception | None = None) -> None:
        with DispatchLog():
            compiled(value)
            compiled(value)
            if error is not None:
                raise error

    with pytest.warns(CompiledRegionWarning, match="2 times") as told:
        run()
    assert len(told) == 1
    assert told[0].filename == __file__
    with pytest.raises(ValueError, match="no"):
        run(ValueError("no"))


def test_a_scope_without_compiled_code_does_not_warn() -> None:
    compiled = torch.compile(torch.abs, backend="aot_eager")
    value = torch.ones(2)
    compiled(value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with DispatchLog():
            value.abs()
        with DispatchLog(), torch.compiler.set_stance("force_eager"):
            compiled(value)
        with DispatchLog():
            thread = threading.Thread(target=compiled, args=(value,))
            thread.start()
            thread.join()


def test_compiled_code_is_noticed_where_dynamo_is_loaded_inside_the_scope() -> None:
    script = """
import sys, torch, warnings
from lamina.modes import CompiledRegionWarning, OpCounter
assert "torch._dynamo" not in sys.modules
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with OpCounter():
        torch.compile(torch.abs, backend="aot_eager")(torch.ones(2))
assert [w for w in told if w.category is CompiledRegionWarning], told
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_dynamo_is_left_as_it_was() -> None:
    import torch._dynamo.eval_frame as dynamo

    original = dynamo._callback_from_stance
    with DispatchLog(), OpCounter():
        assert dynamo._callback_from_stance is not original
    assert dynamo._callback_from_stance is original


def test_an_operator_that_runs_between_compiled_pieces_is_seen() -> None:
    def broken(value: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(value.abs()).neg()  # Dynamo leaves nonzero out, and looks into what it calls

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(broken, backend=counter)
    value = torch.ones(2)
    with pytest.warns(CompiledRegionWarning), DispatchLog() as mode:
        result = compiled(value)
    assert result.tolist() == [[0], [-1]]
    assert counter.frame_count == 2
    assert list(mode.counts) == ["aten::abs", "aten::nonzero", "aten::neg"]
