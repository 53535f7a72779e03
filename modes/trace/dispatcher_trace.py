"""DispatcherTrace: each decision of the dispatcher in its scope, in order and depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import (
    OpOverload,
    every_decision,
    function_mode_on_top,
    function_modes_on_stack,
    lacking,
    metadata_only,
    modes_on_stack,
)
from ...subclasses.logging_tensor.phase import current_phase, unwatch_optimizers, watch_optimizers
from ...subclasses.logging_tensor.record import describe_call, describe_error, name_of
from ..switch import Switch
from .decision import Decision
from .handlers import handler_of_call, place_of
from .keyset import KeySets, key_sets, operands
from .slots import Kernel, Slot, slots_of

# What a trace shows, each of which a build of torch may lack.
VIEWS = ("the dispatcher's decisions", "key sets", "dispatch tables", "dispatch modes", "function modes")


class NestedTraceError(RuntimeError):
    """A trace was entered inside another one: the inner would be seen by the outer, and both would be wrong."""


class DispatcherTrace(Switch, TorchFunctionMode):
    """Shows how the dispatcher picks kernels, in the build of PyTorch that everyone has: for each call of its scope,
    backward too, the operator, the arguments' key sets united, the keys that the thread adds and takes away, the key
    chosen, the kernel in that slot with the file and line of its registration, and what that kernel calls in turn.
    Function modes, dispatch modes, and wrapper classes with their rules show as the layers they are.

    The order, the keys chosen and the nesting are observed. Key sets, and what a slot holds, are computed from the
    arguments and the dispatcher's tables at that moment; where the two disagree the line says so.

    Operators in other threads do not show. Under ``torch.compile``: what is compiled in the scope is traced with the
    compiler's own calls; compiled code shows by the operators that it sends through the dispatcher.

    ``decisions``: the records. ``print`` gives text, ``tree()`` a ``rich`` tree, ``to_json()`` plain types, and
    ``to_chrome()`` events that Perfetto and chrome://tracing open. ``unseen``: what the installed torch doesn't let the
    trace see, and the private names that it lacks for that; the lines then go without.

    Raises:
        NestedTraceError: on entering, inside another trace.

    >>> import torch
    >>> with DispatcherTrace() as trace:
    ...     _ = torch.ones(2).sin()
    >>> [(each.op, each.key) for each in trace.decisions if each.op == "aten::sin"]
    [('aten::sin', 'AutogradCPU'), ('aten::sin', 'CPU')]
    """

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []
        self.unseen: dict[str, list[str]] = {}
        self._path: list[Decision] = []
        self._scope = ExitStack()
        self._tables: dict[str, dict[str, Slot]] = {}

    def roots(self) -> list[Decision]:
        """The decisions that no other one made."""
        return [each for each in self.decisions if each.depth == 0]

    def __str__(self) -> str:
        return "\n".join([*self.gaps(), *map(str, self.decisions)])

    def gaps(self) -> list[str]:
        """A line for each thing that the installed torch doesn't let the trace see."""
        lacks = f"torch {torch.__version__} lacks"
        return [f"not seen: {view} ({lacks} {', '.join(names)})" for view, names in self.unseen.items()]

    def to_json(self) -> list[dict[str, Any]]:
        """The decisions as plain types, in order."""
        return [each.to_json() for each in self.decisions]

    def to_chrome(self) -> dict[str, Any]:
        """A Chrome trace. Times hold the tracing itself: they show the order, not what a call costs."""
        return {"traceEvents": [_event(each) for each in self.decisions], "displayTimeUnit": "ns"}

    def tree(self, *, keys: bool = True) -> Any:
        """As a ``rich.tree.Tree``, which ``rich.print`` shows; without the key sets, if asked."""
        from .tree import tree_of

        return tree_of(self.decisions, keys, self.gaps())

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        name, _ = name_of(func)
        if name.startswith(("torch._C.", "profiler::")) or getattr(func, "__name__", None) == "__get__":
            return func(*args, **(kwargs or {}))
        with metadata_only():
            stack = function_modes_on_stack() if "function modes" not in self.unseen else []
        modes = [mode for mode in stack if mode is not self]
        decision = self._record("call", name, args, kwargs or {})
        decision.target = f"{name}({', '.join(map(str, decision.inputs))})" if not modes else None
        return self._run(decision, lambda: self._through(modes, func, args, kwargs or {}))

    def _through(self, modes: Sequence[Any], func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        for mode in reversed(modes):
            line = self._record("function mode", name_of(func)[0], (), {})
            line.target, line.where, line.observed = type(mode).__name__, place_of(type(mode).__torch_function__), False
        return func(*args, **kwargs)

    def _decide(self, op: OpOverload, key: str, source: str) -> Callable[..., Any]:
        def decided(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            name = op.name()
            decision = self._record("dispatcher", name, args, kwargs)
            tensors = operands(op, args, kwargs)
            decision.key, decision.source = key, source
            if "key sets" not in self.unseen:
                decision.keys = self._keys(decision, key, tensors)
            if "dispatch tables" not in self.unseen:
                decision.slot = self._slots(name).get(key, Slot(key, Kernel.MISSING))
            if key == "Python" and "dispatch modes" not in self.unseen:
                self._name_handler(decision, op, tensors)
            return self._run(decision, lambda: run(*args, **kwargs), _nodes(tensors))

        return decided

    def _keys(self, decision: Decision, chosen: str, tensors: Sequence[torch.Tensor]) -> KeySets:
        """As the thread's state says; and where that is not what was chosen, below the kernel that calls it again."""
        keys = key_sets(tensors, self._slots(decision.op))
        for caller in reversed(self._path):
            if keys.highest == chosen or caller.op != decision.op or caller.key is None:
                break
            under = keys.under(caller.key)
            keys = under if under.highest == chosen else keys
        return keys

    def _slots(self, op: str) -> dict[str, Slot]:
        if op not in self._tables:
            self._tables[op] = slots_of(op) if "dispatch tables" not in self.unseen else {}
        return self._tables[op]

    def _name_handler(self, decision: Decision, op: OpOverload, tensors: Sequence[torch.Tensor]) -> None:
        with metadata_only():
            handler = handler_of_call(op, modes_on_stack(), tensors)
        if handler is not None:
            decision.layer, decision.target, decision.where = handler

    def _record(self, layer: str, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Decision:
        inputs, keywords = describe_call(args, kwargs)
        decision = Decision(len(self.decisions), len(self._path), layer, op, current_phase(), inputs, keywords)
        self.decisions.append(decision)
        return decision

    def _run(self, decision: Decision, call: Callable[[], Any], before: Sequence[Any] = ()) -> Any:
        self._path.append(decision)
        decision.start_ns = time.perf_counter_ns()
        try:
            result = call()
        except Exception as error:
            decision.error = describe_error(error)
            raise
        finally:
            decision.duration_ns = time.perf_counter_ns() - decision.start_ns
            self._path.pop()
        if decision.kernel is Kernel.AUTOGRAD or (decision.slot is None and decision.source == "Autograd"):
            decision.records = next((type(node).__name__ for node in _nodes(result) if node not in before), None)
        return result

    def _begin(self) -> None:
        if _active:
            raise NestedTraceError("a DispatcherTrace is on already, and traces do not nest: leave it first.")
        _active.append(self)
        self._tables.clear()
        self.unseen = {view: missing for view in VIEWS if (missing := lacking(view))}
        watch_optimizers()

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - what a Switch is told
        unwatch_optimizers()
        _active.remove(self)

    def _push(self) -> Any:
        TorchFunctionMode.__enter__(self)
        if "the dispatcher's decisions" not in self.unseen:
            self._scope.enter_context(every_decision(self._decide))
        return self

    def _pop(self) -> None:
        self._scope.close()
        TorchFunctionMode.__exit__(self, None, None, None)

    def _on_top(self) -> bool:
        return function_mode_on_top() is self


_active: list[DispatcherTrace] = []


def _nodes(values: Any) -> list[Any]:
    """The autograd nodes of tensors."""
    with metadata_only():
        return [each.grad_fn for each in tensors_in(values) if each.grad_fn is not None]


def _event(each: Decision) -> dict[str, Any]:
    return {
        "name": each.op if each.key is None else f"{each.op} [{each.key}]",
        "cat": each.layer,
        "ph": "X",
        "ts": each.start_ns / 1000,
        "dur": each.duration_ns / 1000,
        "pid": 0,
        "tid": 0,
        "args": {"line": each.text(), "phase": each.phase},
    }
