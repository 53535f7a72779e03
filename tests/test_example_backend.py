"""The backend of examples/numpy_backend.py. Its name stays for the life of a process, so each test asks another one."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).resolve().parent.parent / "examples"
IGNORED = "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
BACKEND = """
import json, torch
from lamina.modes import explain_table
from out_of_tree_backend import ALL, fallback, fell_back, trained
ALL.fallback(fallback, "PrivateUse1")

def shown(result):
    print(json.dumps(result))

def refused(call):
    try:
        call()
    except NotImplementedError as error:
        return str(error)

x = torch.arange(6.0).view(2, 3).to("arrays")
"""


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-W", IGNORED, *arguments]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=300)


@cache
def sections() -> dict[str, list[str]]:
    """What the example prints: the indented lines by the line above them."""
    ran = process("out_of_tree_backend.py")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line] = []
    return found


def answer(code: str) -> Any:
    """What ``code`` shows, in a process with the backend and its fallback."""
    ran = process("-c", BACKEND + code)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_torch_knows_the_accelerator_and_its_keys() -> None:
    keys = "PrivateUse1 ADInplaceOrView AutogradPrivateUse1 AutocastPrivateUse1"
    assert next(iter(sections())) == f"accelerator: arrays keys: {keys}"
    code = "a = torch.accelerator; shown([str(a.current_accelerator()), a.is_available(), a.device_count()])"
    assert answer(code) == ["arrays", True, 1]


AUTOGRAD = ["aten::sigmoid at AutogradPrivateUse1: autograd kernel"]
MM = ["aten::mm at AutogradPrivateUse1: autograd kernel", "aten::mm at PrivateUse1: backend kernel"]
COMPOSITE = [*AUTOGRAD, "aten::sigmoid at PrivateUse1: composite explicit kernel"]
RESULT = "a result on arrays:0"
COULD_NOT = "NotImplementedError: Could not run"


@pytest.mark.parametrize(
    ("title", "lines"),
    [
        ("a kernel", [*MM, RESULT]),
        (
            "no kernel",
            [
                *COMPOSITE,
                "aten::sigmoid.out at PrivateUse1: missing",
                f"{COULD_NOT} 'aten::sigmoid.out' with arguments from the 'arrays' backend",
            ],
        ),
        (
            "the fallback",
            [
                *COMPOSITE,
                "aten::sigmoid.out at PrivateUse1: backend fallback",
                "aten::sigmoid.out at CPU: backend kernel",
                RESULT,
            ],
        ),
        (
            "autocast",
            [
                "aten::mm at AutocastPrivateUse1: missing",
                f"{COULD_NOT} 'aten::mm' with arguments from the 'Autocastarrays' backend",
            ],
        ),
        ("autocast, with a fallthrough", [*MM, RESULT]),
    ],
)
def test_each_call_takes_the_slots_that_are_filled(title: str, lines: list[str]) -> None:
    assert sections()[title] == lines


def test_the_fallback_ran_for_the_operators_without_a_kernel_and_no_others() -> None:
    took = "sigmoid.out addmm.out sum.IntList_out fill_.Scalar sigmoid_backward.grad_input add.out"
    line = next(line for line in sections() if line.startswith("after a training step"))
    assert line.partition(" took ")[2].split() == [f"aten::{name}" for name in took.split()]
    code = "trained('arrays'); shown([explain_table(op)['PrivateUse1'].kernel.value for op in fell_back])"
    assert set(answer(code)) == {"backend fallback"}


def test_a_training_step_equals_the_cpus() -> None:
    layer = answer("made = trained('arrays'); shown([made.weight.grad.tolist(), made.weight.tolist()])")
    torch.manual_seed(0)
    expected = torch.nn.Linear(3, 4)
    torch.sigmoid(expected(torch.randn(2, 3))).sum().backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    torch.testing.assert_close(torch.tensor(layer), torch.stack([expected.weight.grad, expected.weight.detach()]))
    assert sum(line.endswith("on arrays:0, as on the CPU: True") for line in sections()) == 2


def test_lamina_types_run_on_the_device() -> None:
    forward, backward, optimizer = sections()["LoggingTensor on arrays:0"]
    assert all(f"'aten::{op}': 1" in forward for op in ("mm", "sigmoid", "sum"))
    assert all(f"'aten::{op}': 1" in backward for op in ("mm", "sigmoid_backward", "expand"))
    assert optimizer == "('optimizer', Counter())"
    gradient = [[3.0] * 3] * 4
    assert f"ScaledInt8Tensor on arrays:0, as on the CPU: True; gradient {gradient}" in sections()


def test_views_share_memory_and_their_gradients_are_the_cpus() -> None:
    code = """
def gradient(x):
    x.requires_grad_()
    y = x * 2
    y[1].mul_(3)
    y[:, 1:].pow_(2)
    y.view(-1)[4:].view(2, 1).neg_()
    y.sum().backward()
    return x.grad.tolist()

there = x.clone()
grads = [gradient(x.cpu()), gradient(x)]
there[1, 1:] = 7
there.t()[0].zero_()
bits = there.to(torch.bfloat16).view(torch.int16)[1]
shown([*grads, there.tolist(), there[1].view(3, 1)[1:].tolist(), bits.tolist()])
"""
    cpu, arrays, *rest = answer(code)
    assert arrays == cpu
    assert rest == [[[0, 1, 2], [0, 7, 7]], [[7], [7]], [0, 16608, 16608]]


@pytest.mark.parametrize("call", ["x.unfold(1, 2, 1)", "torch.empty(0, device='arrays').set_(x)"])
def test_the_fallback_refuses_to_share_memory(call: str) -> None:
    told = answer(f"shown(refused(lambda: {call}))")
    assert told.startswith("aten::")
    assert told.endswith(" shares memory, for which 'arrays' needs a kernel of its own")


def test_results_may_grow_and_be_empty() -> None:
    code = """
grown = torch.empty(0, device="arrays")
torch.add(x, x, out=grown)
nothing = torch.empty(0, 3).to("arrays").sum()
shown([grown.tolist(), x.nonzero().shape, x.sort(descending=True)[1].tolist(), nothing.item(), repr(x[0])])
"""
    grown, shape, order, nothing, text = answer(code)
    assert (grown, shape, order) == ([[0, 2, 4], [6, 8, 10]], [5, 2], [[2, 1, 0]] * 2)
    assert nothing == 0
    assert text == "tensor([0., 1., 2.], device='arrays:0')"


def test_a_torch_without_backends_in_python_is_named() -> None:
    code = "import runpy; from torch.utils import backend_registration as b\n"
    code += "del b._setup_privateuseone_for_python_backend; runpy.run_path('numpy_backend.py')"
    ran = process("-c", code)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"torch {torch.__version__} takes no backends in Python")
