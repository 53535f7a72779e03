"""`lamina plan`."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from command_line import module_here
from torch import nn
from typer.testing import CliRunner, Result

import lamina
from lamina.commands import app
from lamina.modes.plan import Training
from lamina.modes.plan.alternatives import Alternative
from lamina.modes.plan.report import in_bytes

MODEL = """
import torch
from torch import nn

def model():
    return nn.Sequential(*(nn.Linear(100, 100) for _ in range(4)))

class Asking(nn.Linear):
    def __init__(self):
        super().__init__(3, 3)

    def forward(self, x):
        result = super().forward(x)
        return result if result.sum() > 0 else -result

def broken():
    raise KeyError("weights")

def given(width):
    return nn.Linear(width, width)

def frozen():
    return nn.Linear(3, 3).requires_grad_(False)

def stopped():
    raise KeyboardInterrupt

number = 3

def text():
    return "model"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return module_here("planned_here", MODEL, tmp_path, monkeypatch)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_model_of_the_users(here: str) -> None:
    found = run(f"{here}:model", "--batch", "32x100", "--optimizer", "sgd", "--dtype", "fp32", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("peak ")
    assert " kB" in found.output
    assert "fits: " in found.output
    assert "Intel Xeon" in found.output
    assert "what would make it fit" not in found.output


def test_json_and_plot(here: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    where = str(tmp_path / "plan.png")
    found = run(f"{here}:model", "--batch", "32x100", "--device", "h100", "--json", "--plot", where)
    data = json.loads(found.output)
    assert (data["batch"], data["dtype"], data["optimizer"]) == ([32, 100], "bfloat16", "adamw")
    assert data["allocator"] == "caching"
    assert data["by_category"]["parameters"] == 4 * (
        20_480 + 512
    )  # weights and biases of bfloat16, rounded to 512 bytes
    assert Path(where).read_bytes().startswith(b"\x89PNG")


def test_what_does_not_fit_and_what_would(here: str) -> None:
    asked = [f"{here}:model", "--batch", "30000000x100", "--device", "l4", "--optimizer", "sgd"]
    found = run(*asked, "--json")
    assert found.exit_code == 1, found.output
    data = json.loads(found.output)
    assert data["fits"] is False
    names = [way["name"] for way in data["alternatives"]]
    assert names[:3] == ["checkpointing", "int8 weights", "checkpointing and int8 weights"]
    assert all(way["peak_bytes"] for way in data["alternatives"])
    smaller = next(way for way in data["alternatives"] if way["name"].startswith("batch "))
    assert smaller["batch"][0] < 30_000_000
    assert smaller["fits"] is True
    words = run(*asked, "--alone")
    assert "does not fit by" in words.output
    assert "what would make it fit" not in words.output
    assert "  batch " in run(*asked).output


def test_an_alternative_says_what_the_allocator_reserves() -> None:
    """That is what has to fit."""
    training = Training(partial(nn.Linear, 100, 100), (10, 100))
    plan = training.plan("l4", allocator="caching")
    assert f" ({in_bytes(plan.reserved_bytes or 0)} reserved), fits: " in str(Alternative("as it is", training, plan))
    exact = training.plan("l4")
    assert "reserved" not in str(Alternative("as it is", training, exact))


def test_a_step_that_raises_shows_the_plan_so_far_and_its_error(here: str) -> None:
    found = run(f"{here}:Asking", "--batch", "2x3")
    assert found.exit_code == 1
    assert "the step ended early" in found.output
    assert "DataDependentError" in found.output
    assert "planned_here.py:14 needs values" in found.output


def test_a_step_that_raised_is_not_said_to_fit(here: str) -> None:
    asked = [f"{here}:Asking", "--batch", "2x3"]
    assert "fits: " not in run(*asked).output
    found = run(*asked, "--json")
    data = json.loads(found.stdout)
    assert (found.exit_code, data["fits"]) == (1, None)
    assert data["error"].startswith("DataDependentError: ")


def test_a_picture_that_cannot_be_written(here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: lamina.modes.plan.Plan, path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(lamina.modes.plan.Plan, "plot", full)
    found = run(f"{here}:model", "--batch", "2x100", "--plot", str(tmp_path / "plan.png"))
    assert found.exit_code == 1
    assert "fits: " in found.stdout
    assert "its picture can't be written: [Errno 28] No space left on device" in found.stderr


def test_ctrl_c_leaves_nothing_switched_on(here: str) -> None:
    found = run(f"{here}:stopped", "--batch", "2x100")
    assert found.exit_code == 130, found.output
    assert "Traceback" not in found.output
    assert type(torch.empty(1)) is torch.Tensor
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["planned_here:model", "--batch", "8x"], "no shape"),
        (["planned_here:model", "--batch", "0x4"], "no shape"),
        (["planned_here:model", "--batch", "8by4"], "no shape"),
        (["planned_here:model", "--device", "b9000"], "h200, h100, a100, l4, cpu"),
        (["planned_here:model", "--dtype", "float23"], "no dtype"),
        (["planned_here:model", "--dtype", "int64"], "floating-point"),
        (["planned_here:model", "--optimizer", "lion"], "adamw, adam, sgd"),
        (["planned_here:model", "--plot", "nowhere/plan.png"], "there is no folder"),
        (["planned_here:number"], "can't be called"),
        (["planned_here:text"], "makes no torch.nn.Module, but str"),
        (["planned_here:absent"], "has no absent"),
        (["planned_here"], "module:factory"),
        (["llama-3b"], "neither one of llama-1b, llama-8b, llama-70b"),
        (["planned_here:broken"], "planned_here:broken raised KeyError: 'weights' ("),
        (["planned_here:broken"], "without arguments, inside FakeLikeMode"),
        (["planned_here:given"], "missing 1 required positional argument: 'width'"),
        (["planned_here:frozen", "--batch", "2x3"], "nothing to train"),
        (["planned_here:model", "--batch", "99999999999999999999x100"], "more elements than any tensor"),
        (["planned_here:model", "--plot", "."], "is a folder"),
        (["planned_here:model", "--plot", "plan.pdf"], "written as .png or .svg"),
        (["planned_here:Asking", "--checkpointing", "--batch", "2x3"], "no list of equal blocks"),
    ],
)
def test_bad_input(arguments: list[str], said: str, here: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2, found.output
    assert said in " ".join(found.output.replace("│", " ").split())


def test_stdout_holds_the_json_alone(here: str) -> None:
    command = [sys.executable, "-m", "lamina", "plan", f"{here}:model", "--batch", "2x100", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["fits"] is True
    assert done.stderr == ""
