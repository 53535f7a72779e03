"""Compiling in a check: graphs that are counted, and results compared with those of a run without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..subclasses.core.private import compiler_of_backend
from .outcome import MismatchError, NotApplicable, first_line
from .subject import Kind, Subject, inner_tensors

BACKEND = "aot_eager"
Function = Callable[..., Any]
Inputs = Callable[[], tuple[Any, ...]]


def compiled(function: Any, **options: Any) -> Any:
    """``torch.compile`` without graph breaks, for classes with the flatten protocol. What was compiled before is
    forgotten: a run without processes of its own would come to the limit of graphs for one function."""
    torch.compiler.reset()
    call: Any = torch.compile(function, **{"fullgraph": True, "backend": BACKEND, **options})
    held = list(function.parameters()) if isinstance(function, torch.nn.Module) else []

    def run(*args: Any) -> Any:
        for each in (*args, *held):
            if isinstance(each, torch.Tensor):
                needs_the_protocol(each)
        return call(*args)

    return run


def needs_the_protocol(value: torch.Tensor) -> None:
    """Compilers can't take another one apart, and what they say differs from call to call.

    Raises:
        NotApplicable: ``value`` is of a class that lacks it.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter) and not is_wrapper(value):
        raise NotApplicable(f"{type(value).__name__} has no flatten protocol: see flatten_protocol_is_there")


class GraphCounter:
    """A backend that counts the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs = 0
        self._compile = compiler_of_backend(BACKEND)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs += 1
        return self._compile(graph, inputs)


def eagerly(function: Function, *args: Any) -> Any:
    """What ``function`` gives without a compiler. What the class can't do there is no matter of the compiler.

    Raises:
        NotApplicable: it raises.
    """
    torch.manual_seed(0)
    try:
        return function(*args)
    except Exception as error:
        raise NotApplicable(f"raises without a compiler, too: {type(error).__name__}: {first_line(error)}") from error


def agree(
    subject: Subject, call: str, function: Function, inputs: Inputs, *, loosely: bool = False, **options: Any
) -> None:
    """``function`` compiled does what it does eagerly: the results and their classes, the inputs afterwards, and, where
    a result requires grad, the gradients. ``inputs`` makes them anew for each run.

    Raises:
        MismatchError: it does not.
        NotApplicable: the class can't do it eagerly.
    """
    args = inputs()
    expected = eagerly(_with_backward(function), *args)
    traced = inputs()
    torch.manual_seed(0)
    got = _with_backward(compiled(function, **options))(*traced)
    same_as_eager(subject, f"compiled {call}", got, expected, loosely=loosely)
    for index, (one, wanted) in enumerate(zip(traced, args, strict=True)):
        if not isinstance(wanted, torch.Tensor):
            continue
        label = f"input {index} after compiled {call}"
        same_as_eager(subject, label, one, wanted, loosely=loosely)
        if wanted.is_leaf and wanted.requires_grad:
            same_gradient(subject, f"gradient of input {index} of compiled {call}", one.grad, wanted.grad, loosely)


def _with_backward(function: Function) -> Function:
    def run(*args: Any) -> Any:
        results = function(*args)
        each = results if isinstance(results, (list, tuple)) else [results]
        losses = [r.sum() for r in each if isinstance(r, torch.Tensor) and r.requires_grad]
        if losses:
            torch.autograd.backward(losses)
        return results

    return run


def same_as_eager(subject: Subject, call: str, got: Any, expected: Any, *, loosely: bool = False) -> None:
    """Compare with an eager result: class, shape, dtype, strides of an instance, and values."""
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)) and len(got) == len(expected):
        for index, (one, wanted) in enumerate(zip(got, expected, strict=True)):
            same_as_eager(subject, f"{call}[{index}]", one, wanted, loosely=loosely)
        return
    if type(got) is not type(expected):
        raise MismatchError(f"type({call})", type(expected), type(got))
    if subject.is_instance(expected) and got.stride() != expected.stride():
        raise MismatchError(f"stride of {call}", str(expected.stride()), str(got.stride()))
    subject.same(call, plain_of(subject, got), plain_of(subject, expected), loosely=loosely)


def same_gradient(subject: Subject, call: str, got: Any, expected: Any, loosely: bool = False) -> None:
    """Compare gradients by their values: a class may choose which type they are of."""
    if expected is None or got is None:
        if got is not expected:
            raise MismatchError(call, expected, got)
        return
    subject.same(call, plain_of(subject, got), plain_of(subject, expected), loosely=loosely)


def plain_of(subject: Subject, value: Any) -> Any:
    """The values, where other wrappers hold the instance, or are the gradient that it chose. A class without values
    stands for itself."""
    if subject.kind is Kind.FAKE:
        return value
    while isinstance(value, torch.Tensor) and not subject.is_instance(value) and is_wrapper(value):
        to_plain = getattr(value, "to_plain", None)
        inner = inner_tensors(value)[0]
        value = to_plain() if to_plain is not None and not is_wrapper(inner) else inner
    return subject.values(value)


def is_wrapper(value: Any) -> bool:
    """Whether it can be taken apart as tracers do."""
    return hasattr(value, "__tensor_flatten__") and hasattr(type(value), "__tensor_unflatten__")


def rebuilt(instance: Any, context: Any) -> Any:
    """As a tracer puts ``instance`` together again, with another ``context``: it shares the inner tensors."""
    names, _ = instance.__tensor_flatten__()
    inner = {name: getattr(instance, name) for name in names}
    return type(instance).__tensor_unflatten__(inner, context, instance.size(), instance.stride())


def context_of(instance: Any) -> Any:
    """What the class says of itself beside its inner tensors."""
    needs_the_protocol(instance)
    return instance.__tensor_flatten__()[1]
