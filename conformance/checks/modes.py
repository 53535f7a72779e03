"""Modes: what watches or changes a scope, torch's and lamina's, around instances of the class."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ... import modes
from ...subclasses.core.private import TorchDispatchMode, frames_compiled, map_nested
from ...subclasses.interop.quiet import quiet_import
from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Subject


class Watching(TorchDispatchMode):
    """Notes each call that it sees, and which of the classes in it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, list[type]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.name(), classes_in((args, kwargs or {}))))
        return func(*args, **(kwargs or {}))


class Passing(TorchFunctionMode):
    """Passes each call on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def classes_in(values: Any) -> list[type]:
    """The classes of the tensors in nested arguments."""
    found: list[type] = []
    map_nested(lambda each: found.append(type(each)) if isinstance(each, torch.Tensor) else None, values)
    return found


def _flop_counter() -> Any:
    """One that prints nothing. Imported where it is used: its module logs a line where there is no Triton."""
    return quiet_import("torch.utils.flop_counter").FlopCounterMode(display=False)


Mode = Callable[[], AbstractContextManager[Any]]
MODES: dict[str, Mode] = {
    "a TorchDispatchMode": Watching,
    "a TorchFunctionMode": Passing,
    "FlopCounterMode": _flop_counter,
    "lamina.modes.DispatchLog": modes.DispatchLog,
    "lamina.modes.FunctionLog": modes.FunctionLog,
    "lamina.modes.OpCounter": modes.OpCounter,
    "two modes": lambda: _both(Watching(), Passing()),
}


def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(first)
    stack.enter_context(second)
    return stack


@check("modes", "an instance can't be made under a mode")
def constructors_work_under_modes(subject: Subject) -> None:
    """``make`` gives an instance with the right values under any dispatch mode and function mode. A constructor that
    goes through an operator, or reuses a tensor's implementation, is caught by the mode."""
    plain = subject.plain(4, 8)
    expected = subject.reference(plain)
    for name, mode in MODES.items():
        with mode():
            instance = subject.wrap(plain)
        subject.same(f"make(plain) under {name}", instance, expected)


def _step(subject: Subject) -> list[Any]:
    """A few calls of each kind, and a backward."""
    instance = subject.new(4, 8, grad=True)
    product = torch.nn.functional.linear(subject.plain(3, 8), instance)
    view = instance.t()
    (product * product).sum().backward()
    return [product.detach(), view.detach(), instance.detach().clone(), subject.values(instance.grad)]


@check("modes", "results change, or an error, under a mode or a FLOP counter")
def ops_work_under_modes(subject: Subject) -> None:
    """A forward and a backward give the same under any dispatch mode and function mode, under ``FlopCounterMode`` and
    under lamina's modes as without: they are how users look for what is wrong."""
    expected = subject.values(_step(subject))
    for name, mode in MODES.items():
        with mode():
            got = _step(subject)
        subject.same(f"[F.linear(a, x), x.t(), x.clone(), x.grad] under {name}", got, expected)


@check("modes", "a dispatch mode sees the inner ops instead of the class's")
def a_dispatch_mode_sees_each_op_once(subject: Subject) -> None:
    """A dispatch mode sees ``x.detach()`` and ``torch.mm(a, x)`` once, with the instance as argument: what the class
    computes inside is not counted again, and nothing of it passes by the mode."""
    instance, plain = subject.new(4, 8), subject.plain(3, 4)
    for call, name, run in (
        ("x.detach()", "aten::detach", instance.detach),
        ("torch.mm(a, x)", "aten::mm", lambda: torch.mm(plain, instance)),
    ):
        with torch.no_grad(), Watching() as mode:
            run()
        named = [classes for seen, classes in mode.seen if seen.split(".")[0] == name]
        if len(named) != 1 or type(instance) not in named[0]:
            expected = f"one call of {name}, with a {type(instance).__name__} as argument"
            raise MismatchError(f"{call} under a TorchDispatchMode", expected, [seen for seen, _ in mode.seen])


class Inspecting(TorchDispatchMode):
    """Does in its handler what debugging modes do: prints the arguments, and computes with them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        text = repr((func, args, kwargs))
        out = func(*args, **(kwargs or {}))
        copies = map_nested(lambda each: each.detach().clone() if isinstance(each, torch.Tensor) else text, args)
        del copies
        return out


@check("modes", "endless recursion, or more calls, when a mode's handler prints or uses the tensors")
def a_handler_may_use_the_instances(subject: Subject) -> None:
    """A dispatch mode may print its arguments and run ops on them: inside its handler the mode is off, and the class
    does not switch it on again or print itself by calls that end in the mode."""
    instance = subject.new(4, 8)
    with torch.no_grad(), Watching() as watching:
        instance.clone()
    with torch.no_grad(), Inspecting() as inspecting:
        instance.clone()
    if inspecting.calls != len(watching.seen):
        call = "x.clone() under a mode that prints and clones its arguments"
        raise MismatchError(call, f"{len(watching.seen)} calls", f"{inspecting.calls} calls")


@check("modes", "FLOPs of a wrapped weight are missing, or counted twice")
def flops_are_counted_once(subject: Subject) -> None:
    """``FlopCounterMode`` counts the products of a linear with an instance as weight once each: 2 M N K in the forward,
    as much for each gradient."""
    weight, activations = subject.new(4, 8, grad=True), subject.plain(3, 8).requires_grad_()
    with _flop_counter() as forward, torch.no_grad():
        torch.nn.functional.linear(activations, weight)
    with _flop_counter() as both:
        torch.nn.functional.linear(activations, weight).sum().backward()
    once = 2 * 3 * 4 * 8
    for call, expected, counter in (("F.linear(a, x)", once, forward), ("it and its backward", 3 * once, both)):
        if counter.get_total_flops() != expected:
            raise MismatchError(f"FLOPs of {call}", f"{expected}", f"{counter.get_total_flops()}")


@check("modes", "compiled code is skipped, or wrong, under a logging or counting mode", seconds=120)
def compiled_code_works_under_modes(subject: Subject) -> None:
    """Under lamina's modes a function of an instance is compiled as it is without a mode, once, and gives the same: to
    look at a model does not change how it runs."""
    instance, activations = subject.new(4, 8), subject.plain(3, 8)

    def apply(weight: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(values, weight).relu()

    expected = subject.values(apply(instance, activations))
    for name in ("lamina.modes.DispatchLog", "lamina.modes.FunctionLog"):
        torch.compiler.reset()
        compiled = torch.compile(apply, backend="aot_eager", fullgraph=True)
        before = frames_compiled()
        with torch.no_grad(), MODES[name]():
            got = [compiled(instance, activations) for _ in range(2)]
        if (frames := frames_compiled() - before) != 1:
            raise MismatchError(f"a compiled function, called twice under {name}", "1 compilation", f"{frames}")
        subject.same(f"the compiled F.linear(a, x).relu() under {name}", got, [expected] * 2, loosely=True)


@check("modes", "crash at exit: a mode entered and never left, then str()", seconds=120, quick=False)
def a_process_ends_well_with_a_mode_left_on(subject: Subject) -> None:
    """A process in which modes are still on, and instances alive that were printed under them, ends with status 0.
    Interactive sessions and notebooks end so."""
    try:
        data = pickle.dumps((subject.cls, subject.make))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise NotApplicable(f"the class and make can't be imported by another process: {error}") from error
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import leave_modes_on as go; go({data!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "can't get attribute" in ended.stderr.lower() or "ModuleNotFoundError" in ended.stderr:
        raise NotApplicable("the class and make can't be imported by another process")
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        got = f"status {ended.returncode}: {lines[-1] if lines else 'nothing was written'}"
        raise MismatchError("mode.__enter__(); str(make(plain)); end of the process", "status 0", got)


def leave_modes_on(data: bytes) -> None:
    """What the other process does."""
    _, make = pickle.loads(data)
    for mode in MODES.values():
        mode().__enter__()
        instance = make(torch.randn(4, 8))
        kept.append(instance.clone())
        str(instance)


kept: list[Any] = []
