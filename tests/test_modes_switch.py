from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from lamina.modes import DispatchLog, FunctionLog, OpCounter

MODES = [DispatchLog, FunctionLog, OpCounter]


def seen(mode: Any) -> int:
    return int(mode.total if isinstance(mode, OpCounter) else len(mode))


@pytest.mark.parametrize("kind", MODES)
def test_a_mode_is_switched_on_and_off(kind: Any) -> None:
    mode = kind()
    torch.ones(1)
    mode.enable()
    torch.ones(1)
    mode.disable()
    torch.ones(1)
    assert seen(mode) == 1


@pytest.mark.parametrize("kind", MODES)
def test_a_mode_is_on_only_once(kind: Any) -> None:
    mode = kind()
    with mode:
        with pytest.raises(RuntimeError, match=f"this {kind.__name__} is on already"):
            mode.enable()
        with pytest.raises(RuntimeError, match="is on already"), mode:
            pass
        torch.ones(1)
    assert seen(mode) == 1
    with pytest.raises(RuntimeError, match="is not on"):
        mode.disable()


@pytest.mark.parametrize("kind", MODES)
def test_modes_are_switched_off_in_reverse_order(kind: Any) -> None:
    first, second = kind(), kind()
    first.enable()
    second.enable()
    with pytest.raises(RuntimeError, match="reverse order"):
        first.disable()
    torch.ones(1)
    second.disable()
    first.disable()
    assert seen(first) == seen(second) == 1


@pytest.mark.parametrize("kind", MODES)
def test_a_mode_ends_with_an_exception(kind: Any) -> None:
    mode = kind()
    with pytest.raises(ValueError, match="no"), mode:
        raise ValueError("no")
    torch.ones(1)
    assert seen(mode) == 0


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("on", ["mode.enable()", "mode.__enter__()"])
def test_a_process_with_a_mode_left_on_ends_normally(kind: Any, on: str) -> None:
    script = f"""
import atexit, torch
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode
atexit.register(lambda: print(_get_current_function_mode(), _get_current_dispatch_mode()))  # after ours
from lamina.modes import {kind.__name__}
mode = {kind.__name__}()
{on}
text = str(torch.ones(2, requires_grad=True) * 2)
print(text, str(mode) != "")
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert "grad_fn=<MulBackward0>" in run.stdout
    assert run.stdout.splitlines()[-1] == "None None"


def test_files_of_a_mode_left_on_are_completed(tmp_path: Any) -> None:
    import json

    script = f"""
import torch
from lamina.modes import DispatchLog
from lamina.subclasses.logging_tensor import ChromeTraceSink, Log
DispatchLog(Log(ChromeTraceSink({str(tmp_path / "trace.json")!r}))).enable()
torch.ones(2)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
    [event] = json.loads((tmp_path / "trace.json").read_text())
    assert event["name"] == "aten::ones"
