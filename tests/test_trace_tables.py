"""Keys and tables without a call, against torch's own text and against what a trace saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import lamina
from lamina.modes import DispatcherTrace
from lamina.modes.trace import (
    Kernel,
    UnknownKeyError,
    UnknownOperatorError,
    dispatch_keys,
    explain_table,
    overload_of,
    which_ops,
    why,
)

OPS = [
    "aten::linear",
    "aten::addmm",
    "aten::add.Tensor",
    "aten::detach",
    "aten::empty.memory_format",
    "lamina::int8_mm",
]


def test_the_keys_of_a_plain_tensor() -> None:
    keys = dispatch_keys(torch.ones(2))
    assert keys.keys == ("CPU", "ADInplaceOrView", "AutogradCPU", "AutocastCPU")
    assert keys.functionalities == ("Dense", "ADInplaceOrView", "AutogradFunctionality", "AutocastCPU")
    assert keys.backend_bits == "1".rjust(keys.backends, "0")
    assert keys.functionality_bits.count("1") == len(keys.keys)
    assert "AutogradCPU  = AutogradFunctionality" in str(keys)


def test_a_gradient_changes_no_key() -> None:
    assert dispatch_keys(torch.ones(2, requires_grad=True)).keys == dispatch_keys(torch.ones(2)).keys


def test_the_keys_of_other_tensors() -> None:
    with torch.inference_mode():
        assert dispatch_keys(torch.ones(2)).keys == ("CPU", "AutocastCPU")
    assert dispatch_keys(torch.ones(2, device="meta")).keys[0] == "Meta"
    assert "Conjugate" in dispatch_keys(torch.ones(2, dtype=torch.complex64).conj()).keys
    assert {"Python", "PythonTLSSnapshot"} < set(dispatch_keys(lamina.LoggingTensor(torch.ones(2))).keys)


@pytest.mark.parametrize("op", OPS)
def test_the_table_is_the_one_that_torch_prints(op: str) -> None:
    table = explain_table(op)
    printed = torch._C._dispatch_dump_table(overload_of(op).name()).splitlines()
    assert [slot.key for slot in table] == [line.partition(":")[0] for line in printed]
    for slot, line in zip(table, printed, strict=True):
        assert slot.where in line
        assert (slot.kernel is Kernel.FALLTHROUGH) == ("fallthrough" in line)
        assert slot.kernel is not Kernel.MISSING
    text = str(table)
    assert all(slot.key in text for slot in table)


def test_kinds_of_kernels() -> None:
    linear, addmm = explain_table("aten::linear"), explain_table("aten::addmm")
    assert linear["AutogradCPU"].kernel is linear["CPU"].kernel is Kernel.IMPLICIT
    assert addmm["CPU"].kernel is Kernel.BACKEND
    assert addmm["AutogradCPU"].kernel is Kernel.AUTOGRAD
    assert addmm["AutocastCPU"].kernel is Kernel.AUTOCAST
    assert addmm["Python"].kernel is Kernel.PYTHON
    assert addmm["SparsePrivateUse1"].kernel is Kernel.MISSING
    assert "SparsePrivateUse1" in addmm.missing()
    assert explain_table("aten::t")["ADInplaceOrView"].kernel is Kernel.VIEW
    assert explain_table("aten::t")["CUDA"].kernel is Kernel.EXPLICIT


CALLS: dict[str, Callable[[], tuple[str, tuple[Any, ...]]]] = {
    "linear": lambda: ("aten::linear", (torch.ones(2, 3), torch.ones(4, 3, requires_grad=True))),
    "addmm": lambda: ("aten::addmm", (torch.ones(4), torch.ones(2, 3), torch.ones(3, 4))),
    "meta": lambda: ("aten::sin", (torch.ones(2, device="meta"),)),
    "view": lambda: ("aten::t", (torch.ones(2, 3),)),
    "cat": lambda: ("aten::cat", ([torch.ones(2), torch.ones(3)],)),
    "wrapper": lambda: ("aten::sin", (lamina.LoggingTensor(torch.ones(2)),)),
}


@pytest.mark.parametrize("scope", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", CALLS)
def test_why_says_what_the_trace_sees(name: str, scope: Callable[[], Any]) -> None:
    with scope():
        op, args = CALLS[name]()
        expected = why(op, *args)
        with DispatcherTrace() as trace:
            overload_of(op)(*args)
    seen = next(each for each in trace.decisions if each.op == op and each.keys is not None)
    assert (expected.key, expected.slot, expected.keys) == (seen.key, seen.slot, seen.keys)
    assert not expected.observed
    assert seen.observed


def test_why_follows_the_state_of_the_thread() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert why("aten::linear", x, w).key == "AutocastCPU"
    with torch.inference_mode():
        assert why("linear", torch.ones(2, 3), torch.ones(4, 3)).key == "CPU"


def test_which_ops_use_a_key() -> None:
    assert "aten::linear" in which_ops("CompositeImplicitAutograd")
    assert "aten::addmm" in which_ops("CPU")
    assert "aten::addmm" not in which_ops("CompositeImplicitAutograd")


@pytest.mark.parametrize(
    "name", ["aten::addmm", "aten.addmm", "addmm", "torch.ops.aten.addmm.default", "aten.addmm.default"]
)
def test_an_operator_has_many_names(name: str) -> None:
    assert overload_of(name) is torch.ops.aten.addmm.default
    assert overload_of("add.Tensor") is torch.ops.aten.add.Tensor
    assert overload_of("lamina::int8_mm") is torch.ops.lamina.int8_mm.default


def test_names_that_are_none() -> None:
    with pytest.raises(UnknownOperatorError, match="aten::addmm") as error:
        explain_table("aten::admm")
    assert "aten::addmm" in error.value.near
    with pytest.raises(UnknownOperatorError, match=r"aten::add\.Tensor"):
        explain_table("aten::add")
    with pytest.raises(UnknownOperatorError, match="Write it as"):
        overload_of("zzzz::qqqq")
    with pytest.raises(UnknownKeyError, match="AutogradCPU"):
        which_ops("AutgradCPU")
    with pytest.raises(UnknownKeyError, match="AutocastCPU"):
        explain_table("aten::mm")["AutocastCP"]


def test_a_new_registration_shows() -> None:
    library = torch.library.Library("lamina_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    assert explain_table("lamina_test::twice")["CPU"].kernel is Kernel.MISSING
    library.impl("twice", lambda x: x + x, "CPU")
    slot = explain_table("lamina_test::twice")["CPU"]
    assert (slot.kernel, slot.place.partition(":")[0]) == (Kernel.BACKEND, "test_trace_tables.py")
    with DispatcherTrace() as trace:
        torch.ops.lamina_test.twice(torch.ones(2))
    assert [each.key for each in trace.decisions if each.op == "lamina_test::twice"][-1] == "CPU"
    library._destroy()


def test_the_plain_linear_of_functional_is_traced_as_why_says() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with DispatcherTrace() as trace:
        F.linear(x, w)
    assert trace.decisions[1].slot == why("aten::linear", x, w).slot
