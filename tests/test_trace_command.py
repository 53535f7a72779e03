"""`lamina trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lamina.commands import app

LINEAR = ["trace", "F.linear(x, w, b)", "--shapes", "x=2x64", "w=600x64", "b=600"]


def lines(*arguments: str) -> list[str]:
    run = CliRunner().invoke(app, [*LINEAR, *arguments])
    assert run.exit_code == 0, run.output
    return run.output.splitlines()


def test_lines_are_indented_by_depth() -> None:
    found = lines("--requires-grad", "w,b")
    assert found[0].startswith("call torch.nn.functional.linear(float32[2, 64], float32[600, 64], float32[600])")
    assert found[1].startswith("  aten::linear(")
    assert "-> AutogradCPU: composite implicit kernel (RegisterCompositeImplicitAutograd" in found[1]
    assert any("records AddmmBackward0" in line for line in found)


def test_backward_scopes_and_classes() -> None:
    assert any("aten::mm" in line for line in lines("--requires-grad", "w,b", "--backward"))
    assert not any("records" in line for line in lines("--requires-grad", "w,b", "--no-grad"))
    assert not any("-> Autograd" in line for line in lines("--inference"))
    assert "AutocastCPU: autocast kernel" in lines("--autocast", "bfloat16", "--brief")[1]
    wrapped = lines("--wrap", "w=lamina.LoggingTensor", "--requires-grad", "w")
    assert any(line.strip().startswith("class LoggingTensor for aten::addmm") for line in wrapped)
    assert any("class ScaledInt8Tensor" in line for line in lines("--wrap", "w=lamina:ScaledInt8Tensor"))


def test_brief_leaves_the_key_sets_out() -> None:
    assert any("{CPU " in line for line in lines())
    assert not any("{CPU " in line for line in lines("--brief"))


def test_other_forms(tmp_path: Path) -> None:
    assert json.loads("\n".join(lines("--json")))["decisions"][1]["op"] == "aten::linear"
    assert any("└── " in line for line in lines("--tree", "--brief"))
    lines("--chrome", str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_tensors_of_other_kinds() -> None:
    run = CliRunner().invoke(app, ["trace", "x[i] * n", "--shapes", "x=4x2", "i=3:int64", "n=scalar", "--brief"])
    assert run.exit_code == 0, run.output
    assert "aten::index.Tensor(float32[4, 2], [int64[3]])" in run.output
    assert "float32[]" in run.output


def test_an_expression_that_raises_shows_its_error_then_the_trace_so_far() -> None:
    run = CliRunner().invoke(app, ["trace", "F.linear(x, w)", "--shapes", "x=2x3", "w=4x5", "--brief"])
    assert run.exit_code == 1
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)" in run.output
    assert "aten::mm" in run.output
    record = CliRunner().invoke(app, ["trace", "F.linear(x, w)", "--shapes", "x=2x3", "w=4x5", "--json"])
    assert json.loads(record.output)["error"].startswith("RuntimeError")
    missing = CliRunner().invoke(app, ["trace", "F.linear(x, y)", "--shapes", "x=2x3"])
    assert missing.exit_code == 1
    assert "NameError: name 'y' is not defined" in missing.output


@pytest.mark.parametrize(
    ("expression", "near"),
    [("torch.ops.aten.admm(x)", "aten.addmm"), ("torch.addm(x)", "addmm"), ("x.reshap(2)", "reshape")],
)
def test_operators_that_do_not_exist_have_near_ones(expression: str, near: str) -> None:
    run = CliRunner().invoke(app, ["trace", expression, "--shapes", "x=2"])
    assert run.exit_code == 1
    first = run.output.splitlines()[0]
    assert first.startswith("AttributeError: ")
    assert near in first.partition(". Near: ")[2].split(", ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_and_the_file_s_name_is_told() -> None:
    run = CliRunner().invoke(app, [*LINEAR, "--chrome", "/dev/full"])
    assert run.exit_code == 2
    assert "--chrome /dev/full: No space left on device" in run.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["F.linear(x,"], "does not parse"),
        (["x = 1"], "does not parse"),
        (["x", "--shapes", "x=2xq"], "is no NAME=SHAPE"),
        (["x", "--shapes", "2x3"], "is no NAME=SHAPE"),
        (["x", "--shapes", "x=2:float99"], "is no dtype"),
        (["x", "--shapes", "x=2", "--requires-grad", "y"], "--requires-grad y"),
        (["x", "--shapes", "x=2", "--wrap", "y=lamina.LoggingTensor"], "there is no tensor 'y'"),
        (["x", "--shapes", "x=2", "--wrap", "x=lamina.NoSuch"], "has no NoSuch"),
        (["x", "--shapes", "x=2", "--autocast", "int99"], "is no dtype"),
        (["x", "--shapes", "x=99999999999999x99999999"], "--shapes x=99999999999999x99999999: Storage size"),
        (["x", "--shapes", "x=2:int64", "--requires-grad", "x"], "--requires-grad x: only Tensors of floating point"),
        (
            ["x", "--shapes", "x=2:int64", "--wrap", "x=lamina.ScaledInt8Tensor"],
            "the dtype of the values is torch.int64",
        ),
        (["x", "--shapes", "x=2", "--chrome", "/no/such/folder/t.json"], "No such file"),
    ],
)
def test_bad_input(arguments: list[str], text: str) -> None:
    run = CliRunner().invoke(app, ["trace", *arguments])
    assert run.exit_code == 2, run.output
    assert text in " ".join(run.output.replace("│", " ").split())
