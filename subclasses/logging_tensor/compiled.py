"""Compiled code, recorded once: a wrapper around a ``torch.compile`` backend reads the graphs when they are compiled.

At run time nothing is recorded and nothing is paid. A backward graph is compiled, and recorded, when it runs first.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from time import perf_counter_ns
from typing import Any, TypeAlias

import torch
from torch import fx

from ..core.private import compiler_of_backend, with_graph_observer
from .log import Log
from .record import OpRecord, Phase, TensorMeta, Value, describe_call, describe_result, name_of
from .scope import active_log

Backend: TypeAlias = Callable[..., Any]


def logged_backend(backend: str | Backend = "inductor", log: Log | None = None) -> Backend:
    """A backend that compiles as ``backend`` does, and records each graph in ``log``, marked compiled.

    Without a log, they go to the one in scope when a graph is compiled. The records are the operators of the graphs
    that AOTAutograd hands to the backend's compiler: after autograd and decompositions, before fusion. A backend that
    does not use AOTAutograd gets Dynamo's graph; then that one is recorded, and its backward runs uncompiled. To see
    each graph, AOTAutograd's cache is off for these compilations.

    >>> import torch
    >>> log = Log()
    >>> double = torch.compile(lambda x: x * 2, backend=logged_backend("aot_eager", log))
    >>> double(torch.ones(3))
    tensor([2., 2., 2.])
    >>> print(log.records[0])
    aten::mul.Tensor(float32[3], 2) -> float32[3]  [forward compiled]
    """
    compile_graph = compiler_of_backend(backend)

    @wraps(compile_graph, updated=())
    def compile_and_record(graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        into = active_log() if log is None else log
        if into is None:
            return compile_graph(graph, inputs, **options)
        seen: list[Phase] = []

        def observe(part: fx.GraphModule, backward: bool) -> None:
            phase: Phase = "backward" if backward else "forward"
            seen.append(phase)
            record_graph(into, part, phase)

        compiled = with_graph_observer(observe, compile_graph, graph, inputs, **options)
        if not seen:
            record_graph(into, graph, "forward")
        return compiled

    return compile_and_record


def record_graph(log: Log, graph: fx.GraphModule, phase: Phase) -> None:
    """Records the calls of a graph in their order. Shapes and dtypes are those that tracing noted on the nodes."""
    now, thread = perf_counter_ns(), threading.get_native_id()
    for node in graph.graph.nodes:
        if _computes_tensors(node):
            log.add(_record(log, node, phase, now, thread))


def _computes_tensors(node: fx.Node) -> bool:
    """Not inputs and outputs, not the taking apart of results, not arithmetic on sizes."""
    if node.op not in ("call_function", "call_method", "call_module") or node.target is operator.getitem:
        return False
    return not isinstance(_noted(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _record(log: Log, node: fx.Node, phase: Phase, now: int, thread: int) -> OpRecord:
    name, overload = name_of(node.target) if node.op == "call_function" else (f"torch.Tensor.{node.target}", "")
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), _noted)
    inputs, keywords = describe_call(args, kwargs)
    return OpRecord(
        index=log.next_index(),
        name=name,
        overload=overload,
        layer="compiled",
        phase=phase,
        inputs=tuple(map(_real, inputs)),
        keywords=tuple((key, _real(value)) for key, value in keywords),
        outputs=tuple(map(_real, describe_result(_noted(node)))),
        module=_module_of(node),
        start_ns=now,
        thread=thread,
    )


def _noted(node: fx.Node) -> Any:
    """The fake value that tracing left on a node: under one name in Dynamo's graphs, another in AOTAutograd's."""
    return node.meta.get("val", node.meta.get("example_value"))


def _real(value: Value) -> Value:
    """The tensors are fake while tracing; the compiled code gets plain ones."""
    if isinstance(value, TensorMeta):
        return replace(value, kind="Tensor")
    return tuple(map(_real, value)) if isinstance(value, tuple) else value


def _module_of(node: fx.Node) -> str | None:
    """``L['self'].encoder.0`` in Dynamo's words; the outermost module shows by its class, as in eager records."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path, cls = list(stack.values())[-1]
    inner = re.sub(r"\[['\"]?([^\]'\"]*)['\"]?\]", r".\1", path.removeprefix("L")).split(".", 2)
    return inner[2] if len(inner) > 2 else str(getattr(cls, "__name__", cls))
