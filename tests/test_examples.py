"""Each example runs in a process of its own, as its docstring says, and shows what it is there to show."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
TRACER, FIRST_TYPE, GPT = (FOLDER / f"{name}.py" for name in ("dispatch_tracer", "first_type", "char_gpt"))
# Torch offers no public way to make a backend in Python, or a tensor of it; these are the ones that its own tests use.
PERMITTED = {FOLDER / "numpy_backend.py": {"_setup_privateuseone_for_python_backend", "_C", "_acc"}}
FEW_STEPS = {GPT: ("--steps", "2", "--characters", "2", "--no-compile")}

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def run(path: Path, *arguments: str, folder: Path | str) -> subprocess.CompletedProcess[str]:
    """An example in a process of its own. A warning fails it, but for the one of torch's own in pyproject.toml."""
    ignored = "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
    command = [sys.executable, "-W", "error", "-W", ignored, str(path), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=500)


@cache
def output_of(path: Path) -> str:
    """What an example prints, run once. A file that it leaves in the current folder fails it."""
    with TemporaryDirectory() as folder:
        ran = run(path, *FEW_STEPS.get(path, ()), folder=folder)
        assert ran.returncode == 0, ran.stderr
        assert list(Path(folder).iterdir()) == []
    return ran.stdout


def total(counts: dict[str, int], part: str) -> int:
    return sum(calls for op, calls in counts.items() if part in op)


@each_example
def test_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) < 100
    assert f"python examples/{path.name}" in (ast.get_docstring(ast.parse(source)) or "")


@each_example
def test_example_uses_public_names_only(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module for module in modules if module and module.startswith("lamina")} <= {"lamina", "lamina.modes"}
    private = [node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    operators = {name for name in private if hasattr(torch.ops.aten, name)}
    own = {"__init__", "__version__"}  # that of a base class, that of torch
    assert set(private) - operators - PERMITTED.get(path, set()) <= own


@each_example
def test_example_runs(path: Path) -> None:
    assert output_of(path)


@pytest.fixture
def traced() -> dict[str, dict[str, dict[str, int]]]:
    """The counts by way and phase: the last line that the tracer prints."""
    counts: dict[str, dict[str, dict[str, int]]] = json.loads(output_of(TRACER).splitlines()[-1])
    return counts


@pytest.mark.parametrize("way", ["counter", "log"])
def test_tracer_finds_the_operators_of_each_phase(traced: dict[str, Any], way: str) -> None:
    phases = traced[way]
    assert list(phases) == ["forward", "backward", "optimizer"]
    assert phases["forward"]["aten::addmm"] == 2
    assert total(phases["forward"], "relu") == 1
    assert phases["backward"]["aten::mm"] >= 3
    assert total(phases["optimizer"], "add") >= 1
    assert total(phases["optimizer"], "mm") == 0


def test_tracer_sees_linear_before_autograd_and_no_addmm(traced: dict[str, Any]) -> None:
    functions = traced["functions"]
    assert functions["forward"]["torch.nn.functional.linear"] == 2
    assert total(functions["optimizer"], "add") >= 1
    assert all(total(counts, "addmm") == 0 for counts in functions.values())


def test_tracer_shows_each_phase() -> None:
    lines = output_of(TRACER).splitlines()
    for phase in ("forward", "backward", "optimizer"):
        assert sum(line.startswith(f"  {phase} ") for line in lines) == 3


def test_tracer_raises_where_numbers_differ() -> None:
    check_equal = runpy.run_path(str(TRACER))["check_equal"]
    ones = [torch.ones(2, dtype=torch.int32)]
    check_equal("twice", ones, [ones[0].clone()])
    for other in ([ones[0] + 1], [], ones * 2):
        with pytest.raises(RuntimeError, match="the step twice gave other numbers"):
            check_equal("twice", ones, other)


@pytest.mark.parametrize("threads", [2, 3])
def test_tracer_puts_the_thread_count_back(capsys: pytest.CaptureFixture[str], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runpy.run_path(str(TRACER), run_name="__main__")
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(output_of(TRACER).splitlines()[-1])


def test_first_type_shows_its_rule_and_its_fallback() -> None:
    lines = output_of(FIRST_TYPE).splitlines()
    assert "tensor([[1., 1.]," in lines
    rule = next(line.split() for line in lines if "aten.mm.default" in line)
    fallback = next(line.split() for line in lines if "aten.sum.default" in line)
    assert {"exact", "scale_rows", "hits=1"} <= set(rule)
    assert {"fallback", "PLAIN", "hits=1"} <= set(fallback)


def test_units_of_results_and_gradients_are_those_of_physics() -> None:
    lines = output_of(FOLDER / "units.py").splitlines()
    assert lines[:2] == ["[1.5, 2.0] in (('m', 1), ('s', -1))", "gradient: [1.5, 2.0] in (('m', 1), ('s', -2))"]
    assert len(lines) == 3


def test_split_floats_are_more_exact_than_bfloat16() -> None:
    errors = [float(line.split()[-1]) for line in output_of(FOLDER / "split_float.py").splitlines()[:2]]
    assert errors[0] > 100 * errors[1]


@pytest.mark.parametrize("name", ["units", "split_float"])
def test_types_of_the_examples_pass_their_checks(name: str) -> None:
    line = output_of(FOLDER / f"{name}.py").splitlines()[-1]
    assert " 0 fail" in line


def test_the_tiny_dispatcher_takes_the_paths_of_the_real_one() -> None:
    lines = output_of(FOLDER / "tiny_dispatcher.py").splitlines()
    real, tiny = lines[::2], lines[1::2]
    assert [line.split()[0] for line in real] == ["plain", "grad", "no_grad", "inference_mode", "missing"]
    assert [line[16:] for line in real] == [line[16:] for line in tiny]
    assert "HardsigmoidBackward0" in real[1]
    assert "Could not run" in real[4]


def test_how_dispatch_works_shows_each_experiment() -> None:
    output = output_of(FOLDER / "how_dispatch_works.py")
    for text in (
        "enable_grad     AutogradCPU > CPU  grad_fn ExpBackward0",
        "no_grad         AutogradCPU > CPU  grad_fn NoneType",
        "inference_mode  CPU                grad_fn NoneType",
        "function mode > PythonTLSSnapshot > AutogradCPU > dispatch mode > class > CPU",
        "AutocastCPU: autocast kernel",
        "Cannot copy out of meta tensor",
        "[4.0, 4.0]",
        "CUDA: composite implicit kernel",
        "gradcheck: True",
        "SparseCPU: missing",
    ):
        assert text in output


def test_a_custom_operator_fills_its_table_step_by_step() -> None:
    output = output_of(FOLDER / "custom_operator.py")
    steps = [part.partition("\n")[0].strip() for part in output.split("AutogradCPU: ")[1:]]
    assert steps == ["backend fallback"] * 3 + ["autograd kernel"] * 2
    assert output.count("CPU: missing") == 1
    for text in ("gradcheck: True", "the rule of LoggingTensor ran", "results: LoggingTensor Tensor"):
        assert text in output


def test_the_softmax_is_checked_on_the_devices_that_are_there() -> None:
    output = output_of(FOLDER / "softmax_operator.py")
    assert "cpu: equal to softmax; gradcheck True" in output
    assert ("cuda: equal to softmax" in output) or ("the CUDA kernel is not registered" in output)
