"""DispatcherTrace: what it shows is what happened, told by other channels too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import profile

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.modes import DispatcherTrace, DispatchLog, FunctionLog, NestedTraceError
from lamina.modes.trace import Decision, Kernel

Tree = list[tuple[str, Any]]


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 64), torch.randn(600, 64, requires_grad=True), torch.randn(600, requires_grad=True)


def lines(trace: DispatcherTrace, *ops: str) -> list[Decision]:
    return [each for each in trace.decisions if each.op in ops and each.layer != "call"]


def tree_of_trace(decisions: list[Decision]) -> Tree:
    """Operators in the order and nesting of their calls; a redispatch is no call."""
    root: Tree = []
    path: list[tuple[int, str, Tree]] = [(-1, "", root)]
    for each in decisions:
        while path[-1][0] >= each.depth:
            path.pop()
        _, caller, children = path[-1]
        if each.layer == "call" or each.op == caller:
            path.append((each.depth, caller, children))
            continue
        made: Tree = []
        children.append((each.op.partition(".")[0], made))
        path.append((each.depth, each.op, made))
    return root


def tree_of_profile(run: Callable[[], Any]) -> Tree:
    with profile(acc_events=True) as seen:  # torch 2.11 warns without it
        run()

    def walk(events: Any) -> Tree:
        found: Tree = []
        for event in sorted(events, key=lambda each: each.start_time_ns):
            inner = walk(event.children)
            if event.name.startswith("aten::"):
                found.append((event.name, inner))
            else:
                found += inner
        return found

    return walk(seen.profiler.kineto_results.experimental_event_tree())


def heads() -> list[Tensor]:
    return [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]


def trained(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Callable[[], None]:
    return lambda: function(*args, **kwargs).sum().backward()


CALLS: dict[str, Callable[[], Callable[[], None]]] = {
    "linear": lambda: trained(F.linear, *inputs()),
    "3-d linear": lambda: trained(F.linear, torch.randn(3, 2, 64), *inputs()[1:]),
    "layer_norm": lambda: trained(F.layer_norm, torch.randn(3, 8, requires_grad=True), (8,)),
    "attention": lambda: trained(F.scaled_dot_product_attention, *heads()),
    "numbers in the place of tensors": lambda: trained(lambda x: (x / 2).mul_(3), torch.ones(3, requires_grad=True)),
    "LoggingTensor": lambda: trained(F.linear, torch.randn(2, 8), LoggingTensor(torch.randn(4, 8)).requires_grad_()),
    "cross_entropy": lambda: trained(F.cross_entropy, torch.randn(3, 5, requires_grad=True), torch.tensor([1, 0, 4])),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "LoggingTensor"])
def test_the_operators_are_those_that_the_profiler_saw(name: str) -> None:
    run = CALLS[name]()
    run()  # a gradient's first accumulation differs from the second
    expected = tree_of_profile(run)
    with DispatcherTrace() as trace:
        run()
    assert expected
    assert tree_of_trace(trace.decisions) == expected


@pytest.mark.parametrize("name", CALLS)
def test_the_computed_key_is_the_one_that_was_chosen(name: str) -> None:
    run = CALLS[name]()
    with DispatcherTrace() as trace:
        run()
    seen = [each for each in trace.decisions if each.keys is not None]
    assert len(seen) > 5
    assert [str(each) for each in seen if each.keys and each.keys.highest != each.key] == []


SCOPES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a dispatch mode": DispatchLog,
}


@pytest.mark.parametrize("scope", SCOPES)
def test_the_computed_key_is_the_one_that_was_chosen_in_other_scopes(scope: str) -> None:
    """Numbers in the place of tensors are among them: under inference_mode C++ makes them tensors without Autograd."""
    x, w, b = inputs()
    wrapped = LoggingTensor(w.detach())
    with SCOPES[scope](), DispatcherTrace() as trace:
        F.layer_norm(F.linear(x, w, b) / 2 + 1, (600,)).mul_(3)
        F.linear(x, wrapped, b).cos()
    seen = [each for each in trace.decisions if each.keys is not None]
    assert len(seen) > 20
    assert [str(each) for each in seen if each.keys and each.keys.highest != each.key] == []


# What the table writes behind a slot that an alias key filled.
WRITTEN = {
    "CompositeImplicitAutograd": "[math kernel]",
    "CompositeExplicitAutograd": "[default backend kernel]",
    "Autograd": "[autograd kernel]",
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_slot_holds_is_what_the_table_of_torch_says(name: str) -> None:
    run = CALLS[name]()
    with DispatcherTrace() as trace:
        run()
    seen = [each for each in trace.decisions if each.key is not None]
    assert {each.source for each in seen} >= {"Autograd", "CPU"}
    for each in seen:
        table = torch._C._dispatch_dump_table(each.op).splitlines()
        (line,) = [text for text in table if text.startswith(f"{each.key}: ")]
        assert each.slot is not None
        assert each.slot.where
        assert f"registered at {each.slot.where} [" in line
        assert line.endswith(WRITTEN.get(each.source or "", "]"))


def test_linear_with_gradients() -> None:
    """Composite at AutogradCPU; inside it t and addmm, each at AutogradCPU, which records, and then at the CPU."""
    x, w, b = inputs()
    with DispatcherTrace() as trace:
        F.linear(x, w, b)
    (linear,) = lines(trace, "aten::linear")
    assert (linear.key, linear.source, linear.kernel) == ("AutogradCPU", "CompositeImplicitAutograd", Kernel.IMPLICIT)
    assert linear.records is None
    t = lines(trace, "aten::t")
    assert [(each.key, each.records) for each in t] == [
        ("AutogradCPU", "TBackward0"),
        ("ADInplaceOrView", None),
        ("CPU", None),
    ]
    assert [each.depth - linear.depth for each in t] == [1, 2, 3]
    addmm = lines(trace, "aten::addmm")
    assert [(each.key, each.kernel, each.records) for each in addmm] == [
        ("AutogradCPU", Kernel.AUTOGRAD, "AddmmBackward0"),
        ("CPU", Kernel.BACKEND, None),
    ]
    assert addmm[1].slot is not None
    assert addmm[1].slot.place.startswith("RegisterCPU")


def test_no_grad_takes_the_same_path_and_records_nothing() -> None:
    x, w, b = inputs()
    paths = []
    for mode in (nullcontext, torch.no_grad):
        with mode(), DispatcherTrace() as trace:
            F.linear(x, w, b)
        paths.append(trace.decisions)
    assert [(each.op, each.key, each.depth) for each in paths[0]] == [(e.op, e.key, e.depth) for e in paths[1]]
    assert [each.records for each in paths[1] if each.records] == []
    assert [each.records for each in paths[0] if each.records] == ["TBackward0", "AddmmBackward0"]


def test_an_in_place_op_under_no_grad_records_nothing_although_its_result_has_a_node() -> None:
    y = torch.ones(3, requires_grad=True) * 2
    with torch.no_grad(), DispatcherTrace() as trace:
        y.add_(1)
    assert y.grad_fn is not None
    assert [each.records for each in trace.decisions] == [None] * len(trace.decisions)


def test_inference_mode_has_no_autograd_key() -> None:
    x, w, b = inputs()
    with torch.inference_mode(), DispatcherTrace() as trace:
        F.linear(x, w, b)
    assert lines(trace, "aten::addmm")
    assert [each.key for each in trace.decisions if (each.key or "").startswith("Autograd")] == []


def test_autocast_and_its_casts_come_first() -> None:
    x, w, b = inputs()
    with torch.autocast("cpu", torch.bfloat16), DispatcherTrace() as trace:
        F.linear(x, w, b)
    first = [each for each in trace.decisions if each.layer == "dispatcher"]
    assert (first[0].op, first[0].key, first[0].kernel) == ("aten::linear", "AutocastCPU", Kernel.AUTOCAST)
    ops = [each.op for each in first]
    assert ops.index("aten::_to_copy") < ops.index("aten::addmm")


def test_a_wrapper_shows_with_its_class_and_rule_and_then_the_inner_op() -> None:
    x, w, b = inputs()
    wrapped = LoggingTensor(w.detach()).requires_grad_()
    with DispatcherTrace() as trace:
        F.linear(x, wrapped, b)
    addmm = lines(trace, "aten::addmm")
    layer = next(each for each in addmm if each.layer == "class")
    assert layer.target is not None
    assert layer.target.startswith("LoggingTensor for aten::addmm: fallback")
    assert layer.where is not None
    assert layer.where.startswith("tensor.py:")
    inner = addmm[addmm.index(layer) + 1]
    assert (inner.key, inner.depth) == ("CPU", layer.depth + 1)


def test_the_rule_of_a_class_is_named_with_its_file_and_line() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(6, 8), activation="int16")
    with DispatcherTrace() as trace:
        F.linear(torch.randn(2, 8), q)
    (mm,) = [each for each in lines(trace, "aten::mm") if each.layer == "class"]
    assert "exact rule mm" in (mm.target or "")
    assert (mm.where or "").startswith("products.py:")
    assert lines(trace, "lamina::int8_mm")


def test_a_dispatch_mode_shows_above_the_class() -> None:
    wrapped = LoggingTensor(torch.randn(3))
    with FunctionLog(), DispatchLog(), DispatcherTrace() as trace:
        torch.sin(wrapped)
    layers = [(each.layer, (each.target or "").partition(" ")[0]) for each in trace.decisions if each.target]
    assert layers == [
        ("function mode", "FunctionLog"),
        ("dispatch mode", "DispatchLog"),
        ("class", "LoggingTensor"),
    ]


def test_the_traced_results_and_gradients_are_those_without_a_trace() -> None:
    for name, make in CALLS.items():
        torch.manual_seed(0)
        run = make()
        plain = [t for cell in run.__closure__ or () for t in _tensors(cell.cell_contents)]
        run()
        grads = [t.grad.clone() for t in plain if t.grad is not None]
        for t in plain:
            t.grad = None
        with DispatcherTrace():
            run()
        again = [t.grad for t in plain if t.grad is not None]
        assert grads, name
        assert all(torch.equal(a, b) for a, b in zip(grads, again, strict=True)), name


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Tensor)]


def test_an_error_is_shown_at_each_level_and_passes() -> None:
    with DispatcherTrace() as trace, pytest.raises(RuntimeError, match="cannot be multiplied"):
        F.linear(torch.ones(2, 3), torch.ones(4, 5))
    assert [each.op for each in trace.decisions if each.error] == [
        "torch.nn.functional.linear",
        "aten::linear",
        "aten::matmul",
        "aten::mm",
        "aten::mm",
    ]
    torch.ones(2).sin()
    assert not trace.decisions[-1].op.startswith("aten::sin")


def test_a_missing_kernel_shows_as_such_with_the_error_of_torch() -> None:
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(NotImplementedError) as plain:
        torch.cumsum(sparse, 0)
    with DispatcherTrace() as trace, pytest.raises(NotImplementedError) as traced:
        torch.cumsum(sparse, 0)
    assert str(traced.value) == str(plain.value)
    autograd, missing = lines(trace, "aten::cumsum")
    assert (autograd.key, autograd.kernel) == ("AutogradCPU", Kernel.AUTOGRAD)
    assert (missing.key, missing.kernel) == ("SparseCPU", Kernel.MISSING)
    assert missing.error is not None
    assert missing.error.startswith("NotImplementedError: Could not run 'aten::cumsum'")


def test_traces_do_not_nest() -> None:
    with DispatcherTrace() as outer:
        with pytest.raises(NestedTraceError, match="do not nest"), DispatcherTrace():
            pass
        torch.ones(2).sin()
    assert lines(outer, "aten::sin")
    with DispatcherTrace() as again:
        torch.ones(2).sin()
    assert lines(again, "aten::sin")


def test_what_others_cached_is_asked_again() -> None:
    """The dispatcher keeps Python answers for each operator: those of an earlier trace, or of a fake mode."""
    for _ in range(2):
        with DispatcherTrace() as trace:
            torch.ones(3).cos()
        assert [each.key for each in lines(trace, "aten::cos")] == ["AutogradCPU", "CPU"]


def test_function_transforms_run_under_a_trace() -> None:
    x = torch.randn(3, 4)
    with DispatcherTrace() as trace:
        mapped = torch.vmap(torch.sin)(x)
        grad = torch.func.grad(lambda a: a.sin().sum())(x)
    assert torch.equal(mapped, x.sin())
    assert torch.equal(grad, x.cos())
    assert "FuncTorchBatched" in [each.key for each in lines(trace, "aten::sin")]


def test_the_backward_is_its_own_phase() -> None:
    run = CALLS["linear"]()
    with DispatcherTrace() as trace:
        run()
    assert {each.phase for each in lines(trace, "aten::mm")} == {"backward"}
    assert {each.phase for each in lines(trace, "aten::addmm")} == {"forward"}


def test_forms() -> None:
    given = inputs()
    with DispatcherTrace() as trace:
        F.linear(*given)
    records = json.loads(json.dumps(trace.to_json()))
    assert [each["op"] for each in records] == [each.op for each in trace.decisions]
    assert records[1]["keys"]["left"][-1] == records[1]["key"] == "AutogradCPU"
    events = json.loads(json.dumps(trace.to_chrome()))["traceEvents"]
    assert len(events) == len(trace.decisions)
    assert all(event["dur"] >= 0 for event in events)
    assert str(trace).splitlines()[2].startswith("    aten::t(float32[600, 64])  {CPU ")
    labels: list[str] = []

    def walk(node: Any) -> None:
        labels.append(str(node.label))
        for child in node.children:
            walk(child)

    walk(trace.tree(keys=False))
    assert labels[1:] == [each.text(keys=False) for each in trace.decisions]


def test_a_process_that_ends_inside_a_trace_ends_well() -> None:
    code = """if True:
        import torch, lamina
        trace = lamina.modes.DispatcherTrace()
        trace.enable()
        torch.ones(2).sin()
        print(len(trace.decisions) > 2)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
