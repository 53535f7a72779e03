from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
import torch

import lamina
from lamina.subclasses.logging_tensor import Log, LogHandle, active_log
from lamina.subclasses.logging_tensor.scope import LIVE, muted

aten = torch.ops.aten


def call(log: Log, *args: Any, func: Any = aten.add.Tensor) -> Any:
    return log.observe(func, func, args or (torch.ones(2), 1), {}, layer="dispatch")


@pytest.fixture(autouse=True)
def _nothing_left_live() -> Any:
    gc.collect()
    assert not LIVE
    yield
    gc.collect()
    assert not LIVE


def test_a_call_is_recorded_with_inputs_outputs_and_times() -> None:
    log = Log()
    result = log.observe(
        aten.add.Tensor, aten.add.Tensor, (torch.ones(2, 3), torch.ones(3)), {"alpha": 2}, layer="dispatch"
    )
    assert torch.equal(result, torch.full((2, 3), 3.0))
    [record] = log.records
    assert str(record) == "aten::add.Tensor(float32[2, 3], float32[3], alpha=2) -> float32[2, 3]  [forward dispatch]"
    assert record.start_ns > 0
    assert record.duration_ns > 0
    assert record.thread == threading.get_native_id()


def test_inputs_are_those_before_the_call() -> None:
    log = Log()
    tensor = torch.ones(2, 3)
    call(log, tensor, func=aten.t_.default)
    assert log.records[0].inputs[0].shape == (2, 3)  # type: ignore[union-attr]
    assert log.records[0].outputs[0].shape == (3, 2)  # type: ignore[union-attr]


def test_a_failed_call_is_recorded_and_raised_again() -> None:
    log = Log()
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        call(log, torch.ones(2, 3), torch.ones(2, 3), func=aten.mm.default)
    [record] = log.records
    assert record.failed
    assert record.error == f"RuntimeError: {caught.value}"
    assert record.outputs == ()


def test_an_interrupted_call_is_recorded_too() -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    log = Log()
    with pytest.raises(KeyboardInterrupt):
        log.observe(aten.relu.default, interrupt, (), {}, layer="dispatch")
    assert log.records[0].error == "KeyboardInterrupt"
    call(log)
    assert log.records[1].depth == 0


def test_depth_is_that_of_the_recorded_calls_of_a_thread() -> None:
    log = Log()

    def inside(*_: Any) -> None:
        call(log)
        thread = threading.Thread(target=call, args=(log,))
        thread.start()
        thread.join()

    log.observe(aten.relu.default, inside, (), {}, layer="dispatch")
    assert [record.depth for record in log.records] == [0, 1, 0]


def test_views_of_a_log() -> None:
    log = Log()
    call(log)
    call(log)
    call(log, torch.ones(2), func=aten.relu.default)
    assert len(log) == 3
    assert [record.index for record in log] == [0, 1, 2]
    assert log.counts == {"aten::add.Tensor": 2, "aten::relu": 1}
    assert log.by_phase["forward"] == log.counts
    assert not log.by_phase["backward"]
    lines = log.table().splitlines()
    assert lines[0].split() == ["op", "forward", "backward", "optimizer", "total"]
    assert lines[1].split() == ["aten::add.Tensor", "2", "2"]
    assert lines[-1].split() == ["total", "3", "0", "0", "3"]
    assert str(log) == log.table()
    plain = json.loads(json.dumps(log.to_json(), allow_nan=False))
    assert plain["total"] == 3
    assert plain["records"] == [record.to_json() for record in log]


def test_an_empty_log_is_true_and_prints() -> None:
    assert Log()
    assert len(Log()) == 0
    assert "total" in str(Log())


def test_rich_prints_the_table() -> None:
    rich = pytest.importorskip("rich.console")
    log = Log()
    call(log)
    console = rich.Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(log)
    assert "aten::add.Tensor" in console.export_text()


# scopes


def test_the_innermost_scope_gets_the_records() -> None:
    outer, inner = Log(), Log()
    assert active_log() is None
    with outer:
        assert active_log() is outer
        with inner:
            assert active_log() is inner
            with outer:
                assert active_log() is outer
            assert active_log() is inner
        assert active_log() is outer
    assert active_log() is None


def test_scopes_that_end_out_of_order() -> None:
    first, second = Log(), Log()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert active_log() is second
    second.__exit__(None, None, None)
    assert active_log() is None


def test_a_scope_ends_with_an_exception() -> None:
    with pytest.raises(ValueError, match="no"), Log():
        raise ValueError("no")
    assert active_log() is None


def test_a_scope_is_that_of_its_thread() -> None:
    seen: list[Log | None] = []
    with Log():
        thread = threading.Thread(target=lambda: seen.append(active_log()))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.skipif(torch.__version__ < "2.12", reason="autograd's other threads get no context of the first")
def test_a_scope_reaches_the_threads_that_work_for_its_backward() -> None:
    script = """
import os, threading, torch
from lamina.subclasses.logging_tensor import Log, active_log
seen = {}
class Nest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, levels):
        ctx.levels = levels
        return value.clone()
    @staticmethod
    def backward(ctx, gradient):
        seen.setdefault(threading.get_ident(), active_log())
        if ctx.levels:
            with torch.enable_grad():
                Nest.apply(torch.ones(1, requires_grad=True), ctx.levels - 1).backward()
        return gradient, None
with Log() as log:
    Nest.apply(torch.ones(1, requires_grad=True), 100).backward()
assert len(seen) > 1, "autograd went on in another thread"
assert set(seen.values()) == {log}, seen
os._exit(0)  # torch's reentrant threads may abort the end of a process
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nothing_is_active_while_sinks_run() -> None:
    with Log(), muted():
        assert active_log() is None
        with muted():
            pass
        assert active_log() is None


# handles


def test_a_handle_names_its_log() -> None:
    log, other = Log(), Log()
    assert log.handle.resolve() is log
    with other:
        assert active_log(log.handle) is log
        assert active_log() is other
    log.close()
    assert log.handle.resolve() is log  # read again
    log.close()


def test_handles_are_values() -> None:
    log = Log()
    handle = log.handle
    for same in (log.handle, copy.deepcopy(handle), copy.copy(handle), pickle.loads(pickle.dumps(handle))):
        assert same == handle
        assert hash(same) == hash(handle)
        assert same.resolve() is log
    assert Log().handle != handle
    with pytest.raises(AttributeError):
        handle.token = "other"  # type: ignore[misc]
    log.close()


def test_the_handle_of_a_closed_or_forgotten_log_names_nothing() -> None:
    closed = Log()
    handle = closed.handle
    closed.close()
    assert handle.resolve() is None
    with Log():
        assert active_log(handle) is None

    forgotten = Log()
    handle, gone = forgotten.handle, weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    assert handle.resolve() is None
    assert not LIVE


def test_a_handle_in_another_process_names_nothing() -> None:
    log = Log()
    script = f"""
import pickle
from lamina.subclasses.logging_tensor import Log, active_log
handle = pickle.loads({pickle.dumps(log.handle)!r})
with Log():
    assert handle.resolve() is None
    assert active_log(handle) is None
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    log.close()


def test_handles_load_with_weights_only(tmp_path: Any) -> None:
    handle = LogHandle("of another process")
    torch.save({"handle": handle}, tmp_path / "handle.pt")
    assert torch.load(tmp_path / "handle.pt", weights_only=True) == {"handle": handle}


def test_looking_for_a_log_is_a_truth_test_where_there_is_none() -> None:
    assert not LIVE
    with Log():
        assert LIVE
    log = Log()
    assert not LIVE
    _ = log.handle
    assert LIVE
    log.close()
    assert not LIVE


def test_a_log_and_its_records_are_free_of_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        log = Log()
        with log:
            call(log)
        gone = weakref.ref(log)
        del log
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("sink", ["trace.json", lamina.ListSink, None])
def test_what_is_no_sink_is_refused_at_once(sink: Any) -> None:
    with pytest.raises(TypeError, match="takes sinks"):
        Log(sink)
