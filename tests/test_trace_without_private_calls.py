"""A torch that lacks a private call: the trace says what it can't see, and goes on. One test for each name."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch._dynamo  # imported first while a name is gone, it would stay half made
import torch.nn.functional as F
from typer.testing import CliRunner

from lamina import LoggingTensor
from lamina.commands import app
from lamina.modes import DispatcherTrace, DispatchLog, FunctionLog
from lamina.modes.trace import UnseenError, dispatch_keys, explain_table, op_card, which_ops, why
from lamina.modes.trace.dispatcher_trace import VIEWS
from lamina.subclasses.core.private import NEEDS, dispatcher

IN_TRACE = [(view, name) for view in VIEWS for name in NEEDS[view]]
ALL = [(view, name) for view, names in NEEDS.items() for name in names]
# What lamina can't do without, trace or not.
CORE = {"torch._C.DispatchKey", "torch._C._dispatch_has_kernel_for_dispatch_key"}


class Lacking:
    """In the place of a torch module or object: it has everything but one name."""

    def __init__(self, real: Any, name: str) -> None:
        self._real, self._lacks = real, name

    def __getattr__(self, name: str) -> Any:
        if name == self._lacks:
            raise AttributeError(name)
        return getattr(self._real, name)


def remove(patch: pytest.MonkeyPatch, name: str) -> None:
    """Takes a name out of torch; of an operator, whose attributes can't be set without it, out of its stand-in."""
    path, _, last = name.rpartition(".")
    owner = reduce(getattr, path.split(".")[1:], torch)
    if isinstance(owner, torch._ops.OpOverload):
        patch.setattr(torch.ops.aten.detach, "default", Lacking(owner, last))
    else:
        patch.delattr(owner, last)


def traced() -> tuple[DispatcherTrace, torch.Tensor]:
    x, w = torch.ones(2, 3), LoggingTensor(torch.ones(4, 3)).requires_grad_()
    with FunctionLog(), DispatchLog(), DispatcherTrace() as trace:
        result = F.linear(x, w)
    return trace, result


@pytest.mark.parametrize(("view", "name"), IN_TRACE, ids=[name for _, name in IN_TRACE])
def test_the_trace_says_what_it_can_not_see_and_goes_on(view: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = traced()
    assert (whole.unseen, whole.gaps()) == ({}, [])
    remove(monkeypatch, name)
    trace, result = traced()
    assert result.to_plain().tolist() == [[3.0] * 4] * 2
    assert trace.unseen == {view: [name]}
    assert str(trace).splitlines()[0] == f"not seen: {view} (torch {torch.__version__} lacks {name})"
    assert [str(child.label) for child in trace.tree().children][:1] == trace.gaps()
    expected = [(each.layer, each.op) for each in whole.decisions if seen_without(view, each.layer, each.key)]
    if view != "dispatch modes":  # the lines are there, and without a handler
        assert [(each.layer, each.op) for each in trace.decisions] == expected
    assert len(trace.decisions) == len(expected)


def seen_without(view: str, layer: str, key: str | None) -> bool:
    if view == "the dispatcher's decisions":
        return key is None
    return layer != "function mode" or view != "function modes"


@pytest.mark.parametrize(
    ("view", "gone"),
    [
        ("key sets", lambda each: each.keys),
        ("dispatch tables", lambda each: each.slot),
        ("dispatch modes", lambda each: each.layer != "dispatcher"),
    ],
)
def test_lines_go_without_what_is_not_seen(
    view: str, gone: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch, NEEDS[view][0])
    lines = [each for each in traced()[0].decisions if each.key is not None]
    assert len(lines) > 5
    assert not any(gone(each) for each in lines)
    assert not any("None" in each.text() for each in lines)


def test_nodes_are_seen_without_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, requires_grad=True)
    remove(monkeypatch, "torch._C._dispatch_dump_table")
    with DispatcherTrace() as trace:
        x.sin()
    assert [each.records for each in trace.decisions if each.key] == ["SinBackward0", None]


TOOLS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "dispatch_keys": (lambda: dispatch_keys(torch.ones(1)), ("key sets", "the bits of key sets")),
    "explain_table": (lambda: explain_table("aten::mm"), ("dispatch tables", "the names of operators")),
    "why": (lambda: why("aten::sin", torch.ones(1)), ("dispatch tables", "the names of operators", "key sets")),
    "which_ops": (lambda: which_ops("CPU"), ("what is registered",)),
    "op_card": (lambda: op_card("aten::mm"), ("dispatch tables", "the names of operators", "what is registered")),
}


@pytest.mark.parametrize(("view", "name"), ALL, ids=[name for _, name in ALL])
def test_the_tools_say_what_is_lacking(view: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, name)
    for ask, views in TOOLS.values():
        if view in views:
            with pytest.raises(UnseenError, match=rf"lacks {name}: {view} can't be seen"):
                ask()
        else:
            ask()


def test_a_card_goes_without_what_would_have_to_be_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "torch._C._EnablePythonDispatcher")
    assert "could not be observed: UnseenError: torch" in op_card("aten::mm").autocast["AutocastCPU"]


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "torch._C._dispatch_dump_table")
    run = CliRunner().invoke(app, ["trace", "torch.ones(2).sin()"])
    assert run.exit_code == 0
    assert run.output.startswith("not seen: dispatch tables")
    assert CliRunner().invoke(app, ["op", "aten::mm"]).exit_code == 2


def test_lamina_is_imported_and_traces_without_all_of_it() -> None:
    """In a process of its own: what is bound on import would not show here. Operators keep their attributes."""
    gone = [name for _, name in ALL if not name.startswith(("torch.ops.", "torch._ops."))]
    code = f"""if True:
        import torch
        import torch._dynamo, torchao  # which use some of it on import
        for name in {gone!r}:
            owner = torch
            for step in name.split(".")[1:-1]:
                owner = getattr(owner, step)
            delattr(owner, name.rpartition(".")[2])
        import lamina
        with lamina.modes.DispatcherTrace() as trace:
            torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
        print(len(trace.gaps()), [each.op for each in trace.decisions])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = f"{len(VIEWS)} ['torch.ones', 'torch.ones', 'torch.nn.functional.linear']"
    assert done.stdout.strip() == expected, done.stderr


def test_every_private_name_that_the_trace_stands_on_is_listed() -> None:
    tree = ast.parse(inspect.getsource(dispatcher))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {name for name in used if re.fullmatch(r"torch\._(C\._|ops\.)\w+", name)}
    assert len(private) > 10
    assert private - CORE <= {name for names in NEEDS.values() for name in names}
