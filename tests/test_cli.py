"""The command line: what it prints, what it hands on, and how it answers bad input."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock, call, create_autospec

import pytest
import torch
from command_line import module_here
from typer.testing import CliRunner, Result

import lamina
import lamina.bench.layers
import lamina.commands
from lamina.cli import main

aten = torch.ops.aten

MY_TYPES = """
import lamina
import torch

class Box(lamina.WrapperTensor):
    elem: torch.Tensor
    fallback = lamina.Fallback.ERROR

    class Inner(lamina.WrapperTensor):
        elem: torch.Tensor

@Box.implements(torch.ops.aten.mm.default)
def box_mm(op, self, mat2):
    return op(self.elem, mat2)

not_a_class = 3
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(lamina.commands.app, arguments, env={"COLUMNS": "300", "NO_COLOR": "1"})


@pytest.fixture
def my_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with wrapper types in the current folder."""
    return module_here("types_of_the_command_line_test", MY_TYPES, tmp_path, monkeypatch)


def test_help_names_the_commands() -> None:
    for arguments in ([], ["--help"]):
        shown = run(*arguments).output
        assert all(command in shown for command in ("demo", "table", "bench"))


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"lamina {version('lamina')}\n")


def test_module_and_script_are_the_same_command(tmp_path: Path) -> None:
    script = str(Path(sys.executable).with_name("lamina"))
    for command in ([sys.executable, "-m", "lamina"], [script]):
        ran = subprocess.run([*command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert ran.stdout == f"lamina {version('lamina')}\n"


def test_table_is_the_op_table_of_the_class(my_types: str) -> None:
    result = run("table", f"{my_types}:Box")
    assert result.exit_code == 0
    assert result.output == f"{lamina.op_table(sys.modules[my_types].Box)}\n"
    assert "box_mm" in result.output


def test_table_finds_a_nested_class(my_types: str) -> None:
    result = run("table", f"{my_types}:Box.Inner")
    assert result.output == f"{lamina.op_table(sys.modules[my_types].Box.Inner)}\n"


@pytest.mark.parametrize("name", ["aten.mm.default", "torch.ops.aten.mm.default", "aten::mm.default"])
def test_table_resolves_one_op(my_types: str, name: str) -> None:
    result = run("table", f"{my_types}:Box", name)
    assert result.exit_code == 0
    assert result.output == f"{lamina.op_table(sys.modules[my_types].Box)[aten.mm.default]}\n"
    assert f"{my_types}.py:" in result.output


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Box", "'Box' is not of the form module:Class"),
        (":Box", "is not of the form module:Class"),
        ("{module}:", "is not of the form module:Class"),
        ("no_such_module_at_all:Box", "no module named no_such_module_at_all"),
        ("{module}.deeper:Box", "no module named {module}.deeper"),
        ("{module}:Bxo", "{module} has no Bxo"),
        ("{module}:Box.Iner", "{module} has no Box.Iner"),
        ("{module}:not_a_class", "no class that derives from lamina.WrapperTensor, but 3"),
        ("torch:Tensor", "no class that derives from lamina.WrapperTensor, but <class 'torch.Tensor'>"),
    ],
)
def test_bad_target_is_a_usage_error(my_types: str, target: str, message: str) -> None:
    result = run("table", target.format(module=my_types))
    assert result.exit_code == 2
    assert message.format(module=my_types) in result.output


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("aten.mn.default", "there is no operator 'aten.mn.default': no 'mn' in it"),
        ("aten.mm.nope", "no 'nope' in it"),
        ("aten.add", "'aten.add' names no overload; there are: Tensor, Scalar"),
        ("aten", "'aten' names no overload, such as aten.mm.default"),
        ("", "'' names no overload, such as aten.mm.default"),
    ],
)
def test_bad_op_is_a_usage_error(my_types: str, op: str, message: str) -> None:
    result = run("table", f"{my_types}:Box", op)
    assert result.exit_code == 2
    assert message in result.output


def test_failure_inside_of_a_module_is_not_taken_for_a_missing_module(my_types: str, tmp_path: Path) -> None:
    (tmp_path / "imports_a_missing_one.py").write_text("import no_such_module_at_all")
    result = run("table", "imports_a_missing_one:Box")
    assert isinstance(result.exception, ModuleNotFoundError)
    assert result.exception.name == "no_such_module_at_all"


def test_demo_gets_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    demo = ModuleType("lamina.demo")
    demo.run = Mock()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lamina.demo", demo)
    assert run("demo").exit_code == 0
    assert run("demo", "--quick", "--json", "--out", str(tmp_path), "--seed", "7").exit_code == 0
    assert demo.run.call_args_list == [
        call(quick=False, json=False, out=Path(), seed=0),
        call(quick=True, json=True, out=tmp_path, seed=7),
    ]
    assert run("demo", "--seed", "seven").exit_code == 2


def test_bench_layers_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = create_autospec(lamina.bench.layers.main, return_value=3)
    monkeypatch.setattr(lamina.bench.layers, "main", measure)
    result = run("bench", "layers", "--quick", "--op", "add", "--json", "x.json")
    assert result.exit_code == 3
    measure.assert_called_once_with(["--quick", "--op", "add", "--json", "x.json"])


def test_bench_layers_has_its_own_help_and_usage_errors() -> None:
    assert "--plot" in run("bench", "layers", "--help").output
    assert run("bench", "layers", "--nope").exit_code == 2


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("typer", "cli"), ("rich.table", "cli"), ("matplotlib.pyplot", "plot"), ("sklearn.datasets", "demo")],
)
def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str, extra: str) -> None:
    def app(prog_name: str) -> None:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr(lamina.commands, "app", app)
    with pytest.raises(SystemExit, match=rf"^lamina: {missing.partition('.')[0]} .* pip install 'lamina\[{extra}\]'$"):
        main()


def test_other_missing_module_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(prog_name: str) -> None:
        raise ModuleNotFoundError(name="no_extra_brings_this")

    monkeypatch.setattr(lamina.commands, "app", app)
    with pytest.raises(ModuleNotFoundError):
        main()


def test_without_typer_the_command_ends_with_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from lamina.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "lamina: typer is not installed, and this command needs it: pip install 'lamina[cli]'\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_can_not_be_written_ends_with_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "lamina", "op", "aten::mm"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "lamina: the output could not be written: No space left on device\n")
