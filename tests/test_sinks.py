from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from lamina.subclasses.logging_tensor import (
    ChromeTraceSink,
    JsonLinesSink,
    ListSink,
    Log,
    LoggingSink,
    NoRecordsError,
    OpRecord,
    Sink,
    SinkError,
    SinkWarning,
)

aten = torch.ops.aten


def call(log: Log, value: float = 1.0) -> Any:
    return log.observe(aten.add.Tensor, aten.add.Tensor, (torch.ones(2), value), {}, layer="dispatch")


def nested(log: Log) -> None:
    log.observe(aten.relu.default, lambda _: call(log), (torch.ones(2),), {}, layer="dispatch")


class Broken(ListSink):
    """Raises at the n-th record, or when it is closed."""

    def __init__(self, at: int | None = None, closing: bool = False) -> None:
        super().__init__()
        self.at, self.closing, self.tries = at, closing, 0

    def write(self, record: OpRecord) -> None:
        self.tries += 1
        if self.tries == self.at:
            raise ValueError("the sink is full")
        super().write(record)

    def close(self) -> None:
        if self.closing:
            raise ValueError("the sink does not close")


def test_a_list_shows_outer_calls_before_inner_ones() -> None:
    log = Log()
    with log:
        nested(log)
    assert [(record.op, record.depth) for record in log] == [("aten::relu", 0), ("aten::add.Tensor", 1)]


def test_logging_gets_text_and_record(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(LoggingSink(level=logging.WARNING), LoggingSink(logging.getLogger("other"), logging.DEBUG), ListSink())
    with caplog.at_level(logging.INFO, "lamina.ops"), log:
        call(log)
    [message] = caplog.records
    assert (message.name, message.levelname) == ("lamina.ops", "WARNING")
    assert message.getMessage() == str(log.records[0])
    assert message.__dict__["lamina"] == log.records[0]


def test_json_lines_hold_one_record_each(tmp_path: Path) -> None:
    log = Log(JsonLinesSink(tmp_path / "ops.jsonl"), ListSink())
    with log:
        nested(log)
        call(log, float("nan"))
        lines = (tmp_path / "ops.jsonl").read_text().splitlines()  # before it is closed
    assert [json.loads(line)["index"] for line in lines] == [1, 0, 2]
    assert [json.loads(line) for line in lines[1:]] == [log.records[0].to_json(), log.records[2].to_json()]


def test_json_lines_are_emptied_by_a_new_sink_and_continued_by_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    path.write_text("old\n")
    log = Log(JsonLinesSink(path))
    for _ in range(2):
        with log:
            call(log)
    assert [json.loads(line)["index"] for line in path.read_text().splitlines()] == [0, 1]


@pytest.mark.parametrize("sink", [JsonLinesSink, ChromeTraceSink])
def test_a_file_that_can_not_be_opened_is_an_error_at_once(tmp_path: Path, sink: type[JsonLinesSink]) -> None:
    with pytest.raises(FileNotFoundError):
        sink(tmp_path / "missing" / "ops")


def test_a_chrome_trace_nests_by_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    log = Log(ChromeTraceSink(path), ListSink())
    with log:
        nested(log)
    inner, outer = json.loads(path.read_text())
    assert (inner["name"], outer["name"]) == ("aten::add.Tensor", "aten::relu")
    assert {event["ph"] for event in (inner, outer)} == {"X"}
    assert inner["tid"] == outer["tid"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert outer["args"]["phase"] == "forward"
    assert outer["ts"] * 1000 == pytest.approx(log.records[0].start_ns)


def test_a_chrome_trace_is_valid_after_an_exception_and_continued_after_a_close(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    log = Log(ChromeTraceSink(path))

    def fail() -> None:
        with log:
            call(log)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert len(json.loads(path.read_text())) == 1
    with log:
        nested(log)
    assert [event["args"]["index"] for event in json.loads(path.read_text())] == [0, 2, 1]


def test_an_empty_chrome_trace_is_valid(tmp_path: Path) -> None:
    with Log(ChromeTraceSink(tmp_path / "trace.json")):
        pass
    assert json.loads((tmp_path / "trace.json").read_text()) == []


def test_the_records_of_a_list_become_a_chrome_trace(tmp_path: Path) -> None:
    log = Log()
    nested(log)
    log.save_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())
    assert [event["name"] for event in events] == ["aten::relu", "aten::add.Tensor"]


def test_a_sink_that_raises_is_told_once_and_left_out() -> None:
    broken, good = Broken(at=2), ListSink()
    log = Log(broken, good)
    with log:
        call(log)
        with pytest.warns(SinkWarning, match=r"Broken raised ValueError: the sink is full") as told:
            result = call(log)
        call(log)
    assert torch.equal(result, torch.full((2,), 2.0))
    assert len(told) == 1
    assert (broken.tries, len(good.records), len(log)) == (2, 3, 3)


def test_a_sink_that_can_not_be_completed_is_an_error_at_the_end() -> None:
    closed = []

    class Closing(ListSink):
        def close(self) -> None:
            closed.append(self)

    log = Log(Broken(closing=True), Closing())
    with pytest.raises(SinkError, match="the sink does not close") as error, log:
        call(log)
    assert isinstance(error.value, OSError)
    assert isinstance(error.value.__cause__, ValueError)
    assert len(closed) == 1
    assert len(log.records) == 1


def test_an_error_in_the_scope_is_not_hidden_by_one_of_a_sink() -> None:
    log = Log(Broken(closing=True))
    with (
        pytest.warns(SinkWarning, match="the sink does not close"),
        pytest.raises(KeyError, match="mine"),
        log,
    ):
        raise KeyError("mine")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("sink", [JsonLinesSink, ChromeTraceSink])
def test_a_full_disk_is_told_and_the_records_so_far_are_kept(sink: type[JsonLinesSink]) -> None:
    kept = ListSink()
    log = Log(sink("/dev/full"), kept)

    at_once = pytest.warns(SinkWarning, match="No space left") if sink is JsonLinesSink else nullcontext()
    with at_once, pytest.raises(SinkError, match="OSError: No space left on device"), log:
        call(log)
    assert len(kept.records) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_a_file_did_not_take_is_told_at_one_end() -> None:
    log = Log(JsonLinesSink("/dev/full"))
    with pytest.warns(SinkWarning), pytest.raises(SinkError), log:
        call(log)
    with log:
        call(log)


def test_what_a_sink_computes_is_not_recorded() -> None:
    class Computing(ListSink):
        def write(self, record: OpRecord) -> None:
            if len(self.records) < 10:
                super().write(record)
                call(log)

    log = Log(Computing())
    with log:
        call(log)
    assert len(log.records) == 1


def test_a_log_without_a_list_counts_and_says_so(tmp_path: Path) -> None:
    log = Log(JsonLinesSink(tmp_path / "ops.jsonl"))
    with log:
        call(log)
    assert (len(log), log.counts["aten::add.Tensor"]) == (1, 1)
    with pytest.raises(NoRecordsError, match="ListSink"):
        _ = log.records


def test_a_sink_of_ones_own() -> None:
    class Names:
        def __init__(self) -> None:
            self.names: list[str] = []

        def write(self, record: OpRecord) -> None:
            self.names.append(record.op)

        def close(self) -> None:
            self.names.append("closed")

    names = Names()
    sink: Sink = names
    with Log(sink) as log:
        call(log)
    assert names.names == ["aten::add.Tensor", "closed"]


def test_files_of_a_forgotten_log_are_completed(tmp_path: Path) -> None:
    script = f"""
import torch
from lamina.subclasses.logging_tensor import ChromeTraceSink, Log
log = Log(ChromeTraceSink({str(tmp_path / "trace.json")!r}))
log.handle
log.observe(torch.ops.aten.relu.default, torch.relu, (torch.ones(2),), {{}}, layer="dispatch")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
    assert len(json.loads((tmp_path / "trace.json").read_text())) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    script = f"""
import os, torch
from lamina.subclasses.logging_tensor import JsonLinesSink, ListSink, Log
log = Log(JsonLinesSink({str(path)!r}), ListSink())
with log:
    log.observe(torch.ops.aten.relu.default, torch.relu, (torch.ones(2),), {{}}, layer="dispatch")
    child = os.fork()
    log.observe(torch.ops.aten.abs.default, torch.abs, (torch.ones(2),), {{}}, layer="dispatch")
    if child == 0:
        os._exit(len(log) - 1)
    assert os.waitpid(child, 0)[1] == 0
assert len(log) == 2
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert len(path.read_text().splitlines()) == 2
