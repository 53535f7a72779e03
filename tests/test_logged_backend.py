from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend

import lamina
from lamina.modes import logged_backend
from lamina.subclasses.logging_tensor import JsonLinesSink, ListSink, Log, LoggingTensor


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 2)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.encoder(value))
        return result


def plainly(graph: fx.GraphModule, _: Any) -> Any:
    """A backend that does not use AOTAutograd."""
    return graph.forward


def boxed(graph: fx.GraphModule, _: Any) -> Any:
    from functorch.compile import make_boxed_func

    return make_boxed_func(graph.forward)


def ops(log: Log, phase: str) -> list[str]:
    return [record.op for record in log if record.phase == phase]


@pytest.mark.parametrize("backend", ["aot_eager", aot_autograd(fw_compiler=boxed)], ids=["by name", "callable"])
def test_forward_and_backward_graphs_are_recorded_once(backend: Any) -> None:
    log, model, value = Log(), Model(), torch.ones(4, 3)
    compiled = torch.compile(model, backend=logged_backend(backend, log), fullgraph=True)
    result = compiled(value)
    assert torch.equal(result, model(value))
    assert ops(log, "forward").count("aten::addmm") == 2
    assert ops(log, "backward") == []  # compiled when it runs first
    result.sum().backward()
    assert ops(log, "backward").count("aten::mm") == 3
    assert all(record.compiled and record.duration_ns == 0 for record in log)
    before = len(log)
    compiled(value).sum().backward()
    assert len(log) == before
    addmm = next(record for record in log if record.op == "aten::addmm")
    assert addmm.module == "encoder.0"
    assert [meta.shape for meta in addmm.inputs] == [(3,), (4, 3), (3, 3)]  # type: ignore[union-attr]
    assert addmm.outputs[0].kind == "Tensor"  # type: ignore[union-attr]
    assert {record.module for record in log if record.phase == "backward"} >= {"encoder.0", "encoder.1", "head"}
    json.dumps(log.to_json(), allow_nan=False)


@pytest.mark.slow
def test_inductor_graphs_are_recorded_also_where_a_cache_would_serve_them(tmp_path: Any) -> None:
    script = """
import torch
from lamina.modes import logged_backend
from lamina.subclasses.logging_tensor import Log
model, value, counts = torch.nn.Linear(3, 2), torch.ones(4, 3), []
for _ in range(2):
    torch.compiler.reset()
    log = Log()
    result = torch.compile(model, backend=logged_backend("inductor", log), fullgraph=True)(value)
    result.sum().backward()
    torch.testing.assert_close(result, model(value))
    counts.append(log.by_phase)
assert counts[0] == counts[1]
assert counts[0]["forward"]["aten::addmm"] == counts[0]["backward"]["aten::mm"] == 1, counts
"""
    caches = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **caches})


def test_a_backend_without_autograd_shows_the_graph_of_dynamo() -> None:
    log, model = Log(), Model()
    torch.compile(model, backend=logged_backend(plainly, log), fullgraph=True)(torch.ones(4, 3)).sum().backward()
    assert ops(log, "forward") == [
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
        "torch.nn.functional.linear",
    ]
    assert ops(log, "backward") == []
    assert log.records[0].module == "encoder.0"


def test_a_new_shape_is_a_new_graph_and_sizes_are_symbols_then() -> None:
    log = Log()
    compiled = torch.compile(torch.abs, backend=logged_backend("aot_eager", log), dynamic=True)
    compiled(torch.ones(4, 3))
    compiled(torch.ones(5, 3))
    [record] = log.records
    assert all(isinstance(size, str) for size in record.outputs[0].shape)  # type: ignore[union-attr]
    compiled(torch.ones(5, 3, dtype=torch.int64))
    assert len(log) == 2


def test_several_results_are_taken_apart_without_a_record() -> None:
    log = Log()

    def largest(value: torch.Tensor) -> torch.Tensor:
        return value.max(dim=0)[0]

    torch.compile(largest, backend=logged_backend("aot_eager", log))(torch.ones(3, 2))
    [record] = log.records
    assert record.op == "aten::max.dim"
    assert [meta.dtype for meta in record.outputs] == [torch.float32, torch.int64]  # type: ignore[union-attr]


def test_without_a_log_the_one_in_scope_gets_the_graph() -> None:
    compiled = torch.compile(torch.abs, backend=logged_backend("aot_eager"))
    with Log() as log:
        compiled(torch.ones(2))
    assert ops(log, "forward") == ["aten::abs"]
    torch.compiler.reset()
    compiled(torch.ones(2))
    assert len(log) == 1


def test_it_compiles_as_often_as_the_backend_that_it_wraps(tmp_path: Any) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    log = Log(JsonLinesSink(tmp_path / "graph.jsonl"), ListSink())
    compiled = torch.compile(torch.abs, backend=logged_backend(counter, log), fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2))
    assert counter.frame_count == 1
    log.close()
    assert len((tmp_path / "graph.jsonl").read_text().splitlines()) == 1


def test_a_failing_compilation_leaves_torch_as_it_was() -> None:
    from torch._functorch import aot_autograd as module

    before = module.aot_stage2_compile  # type: ignore[attr-defined]

    def failing(*_: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(Exception, match="no"):
        torch.compile(torch.abs, backend=logged_backend(failing, Log()))(torch.ones(2))
    assert module.aot_stage2_compile is before  # type: ignore[attr-defined]


def test_an_unknown_backend_is_an_error_at_once() -> None:
    with pytest.raises(Exception, match="nonsense"):
        logged_backend("nonsense")


def test_wrapped_parameters_record_nothing_while_traced_and_their_graph_once() -> None:
    torch.manual_seed(0)
    model = Model()
    wrapped = Model()
    wrapped.load_state_dict(model.state_dict())
    for layer in (wrapped.encoder[0], wrapped.head):
        layer.weight = nn.Parameter(LoggingTensor(layer.weight.detach()))  # type: ignore[assignment, arg-type]
    value = torch.ones(4, 3)
    compiled = torch.compile(wrapped, backend=logged_backend("aot_eager"), fullgraph=True)
    with Log() as log:
        compiled(value)
    assert isinstance(wrapped.head.weight, lamina.WrapperTensor)
    assert ops(log, "forward").count("aten::addmm") == 2
    assert {record.layer for record in log} == {"compiled"}
    with Log() as second:
        result = compiled(value)
    assert torch.equal(result.to_plain(), model(value))
    assert len(second) == 0
