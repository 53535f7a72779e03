"""Inside one compiled graph: values and gradients, and what can be asked of an instance there."""

from __future__ import annotations

import shutil
from enum import Enum
from typing import Any

import torch
import torch.nn.functional as F

from ..check import check
from ..graphs import agree, eagerly, needs_the_protocol, plain_of
from ..outcome import NotApplicable
from ..subject import VALUED, Subject

INDUCTOR: dict[str, Any] = {"backend": "inductor", "options": {"compile_threads": 1}}


def _mixed(x: Any, p: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * p + 1) @ p.t()


def _mixed_agrees(subject: Subject, text: str, **how: Any) -> None:
    def arguments() -> tuple[Any, torch.Tensor]:
        return subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1).requires_grad_()

    agree(subject, text, _mixed, arguments, loosely=True, **how)


@check("compile", "compiled values or gradients differ from those of an eager run", kinds=VALUED)
def compiled_equals_eager(subject: Subject) -> None:
    """A graph with an instance and a plain tensor, both of which get gradients. One that is traced as what the class
    holds, not as what it stands for, computes something else."""
    _mixed_agrees(subject, "torch.tanh(x * p + 1) @ p.t()")


@check(
    "compile", "Inductor fails on a graph that aot_eager takes, or computes something else", seconds=180, kinds=VALUED
)
def inductor_equals_eager(subject: Subject) -> None:
    """The same graph by the default backend: it fuses, reorders and generates code."""
    needs_a_compiler()
    _mixed_agrees(subject, "torch.tanh(x * p + 1) @ p.t(), by Inductor", **INDUCTOR)


def needs_a_compiler() -> None:
    """Inductor writes C++.

    Raises:
        NotApplicable: nothing here compiles it.
    """
    if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
        raise NotApplicable("Inductor needs a C++ compiler, and there is none on the path")


@check("compile", "attributes of the class break the graph, or read as those of a tracer's tensor")
def attributes_trace(subject: Subject) -> None:
    """Inner tensors, by the names that flatten lists, the metadata, and the class's own settings are read in a graph
    as they are outside."""
    needs_the_protocol(subject.new(4, 8))
    for name in subject.new(4, 8).__tensor_flatten__()[0]:
        agree(subject, f"x.{name}.clone()", _copy_of(name), lambda: (subject.new(4, 8),))
    settings = _settings(subject.new(4, 8))
    instance_type = subject.cls

    def asked(x: Any, p: torch.Tensor) -> Any:
        answers = [isinstance(x, instance_type), x.shape == (4, 8), x.dim() == 2, x.dtype == torch.float32]
        answers += [getattr(x, name) == value for name, value in settings.items()]
        return [p + (1 if answer else 0) for answer in answers]

    names = ["isinstance(x, cls)", "x.shape", "x.dim()", "x.dtype", *(f"x.{name}" for name in settings)]
    agree(subject, f"read {', '.join(names)}", asked, lambda: (subject.new(4, 8), torch.zeros(1)))


def _copy_of(name: str) -> Any:
    return lambda x: getattr(x, name).clone()


def _settings(instance: Any) -> dict[str, Any]:
    """Public attributes with a plain value."""
    plain = (bool, int, float, str, Enum, torch.dtype)
    return {name: each for name, each in vars(instance).items() if isinstance(each, plain) and name[0] != "_"}


@check("compile", "dequantize() or to_plain() breaks the graph, or gives what is inside undecoded", kinds=VALUED)
def values_are_read_in_a_graph(subject: Subject) -> None:
    """The method that gives plain values traces, and its result is used further."""
    instance = subject.new(4, 8)
    own = [n for n in ("to_plain", "dequantize") if getattr(subject.cls, n, None) not in _of_tensor(n)]
    if not own:
        raise NotApplicable(f"{type(instance).__name__} has no to_plain() or dequantize()")
    for name in own:
        agree(subject, f"x.{name}() * 2", _twice(name), lambda: (subject.new(4, 8),))


def _twice(name: str) -> Any:
    return lambda x: getattr(x, name)() * 2


def _of_tensor(name: str) -> tuple[Any, ...]:
    return (None, getattr(torch.Tensor, name, None))


@check("compile", "a constructor in a compiled function breaks the graph", kinds=VALUED)
def instances_are_made_in_a_graph(subject: Subject) -> None:
    """``make(plain)`` in a graph: the result is returned, and one is used there. Training code that quantizes on the
    fly does that at each step."""
    make = subject.make
    agree(subject, "make(p)", make, lambda: (subject.plain(4, 8),), loosely=True)
    agree(subject, "p @ make(p).t()", lambda p: p @ make(p).t(), lambda: (subject.plain(4, 8),), loosely=True)


@check("compile", "a compiled function returns the inner tensor, or another class, in place of an instance")
def instances_are_returned_from_a_graph(subject: Subject) -> None:
    """What is an instance eagerly is one when it comes out of a graph, with the same settings, and works there."""
    calls = {
        "x.detach()": lambda x: x.detach(),
        "x.clone()": lambda x: x.clone(),
        "x.t()": lambda x: x.t(),
        "[x, x * 2]": lambda x: [x, x * 2],
    }
    each_applies(subject, calls, lambda: (subject.new(4, 8),))


@check("compile", "slices of an instance fail in a graph, or cut only one of the tensors inside", kinds=VALUED)
def slices_trace(subject: Subject) -> None:
    """Rows, columns, single rows and pieces of an instance in a graph: weights are cut there for fused projections."""
    calls = {
        "x[1:3] * 1": lambda x: x[1:3] * 1,
        "x[:, 4:] * 1": lambda x: x[:, 4:] * 1,
        "x[1] * 1": lambda x: x[1] * 1,
        "x.chunk(2)[1] * 1": lambda x: x.chunk(2)[1] * 1,
        "x.t()[2:4] * 1": lambda x: x.t()[2:4] * 1,
    }
    each_applies(subject, calls, lambda: (subject.new(4, 8),))


def each_applies(subject: Subject, calls: dict[str, Any], inputs: Any, **options: Any) -> None:
    """``agree`` on each call that the class can do eagerly; at least on one."""
    refused: list[NotApplicable] = []
    for call, function in calls.items():
        try:
            agree(subject, call, function, inputs, **options)
        except NotApplicable as reason:
            refused.append(reason)
    if len(refused) == len(calls):
        raise refused[0]


@check("compile", "a function-level override changes the result when it is compiled", kinds=VALUED)
def functions_agree_in_a_graph(subject: Subject) -> None:
    """Public functions give the same compiled as eagerly. A ``__torch_function__`` that computes something else than
    the dispatch handlers is easily lost, or applied twice, when a tracer takes a function apart."""
    calls = {
        "F.relu(x)": F.relu,
        "F.gelu(x)": F.gelu,
        "torch.softmax(x, 1)": lambda x: torch.softmax(x, 1),
        "F.layer_norm(x, (8,))": lambda x: F.layer_norm(x, (8,)),
        "torch.cat([x, x])": lambda x: torch.cat([x, x]),
        "torch.where(x > 0, x, 0.5)": lambda x: torch.where(x > 0, x, 0.5),
        "x.mean(0)": lambda x: x.mean(0),
        "torch.add(x, 1.5)": lambda x: torch.add(x, 1.5),
        "-x": lambda x: -x,
        "F.linear(p, x)": lambda x: F.linear(torch.ones(3, 8, device=x.device), x),
        "F.embedding(i, x)": lambda x: F.embedding(torch.tensor([0, 2], device=x.device), x),
    }
    each_applies(subject, calls, lambda: (subject.new(4, 8, grad=True),), loosely=True)


@check(
    "compile",
    "F.linear is taken apart in a graph, and its pieces miss the weight; a keyword bias is lost",
    kinds=VALUED,
)
def linear_traces(subject: Subject) -> None:
    """A linear layer's product with an instance as the weight, positional and by keyword, with a bias, compiled and
    not: the products of decoded operands, with gradients of input and bias."""
    weight, bias = subject.reference(subject.plain(4, 8)), subject.plain(4, seed=2)
    x = subject.plain(3, 8, seed=1)
    expected = F.linear(x, weight, bias)
    calls: dict[str, Any] = {
        "F.linear(x, w, b)": F.linear,
        "F.linear(x, w, bias=b)": lambda x, w, b: F.linear(x, w, bias=b),
        "F.linear(input=x, weight=w, bias=b)": lambda x, w, b: F.linear(input=x, weight=w, bias=b),
        "torch.addmm(b, x, w.t())": lambda x, w, b: torch.addmm(b, x, w.t()),
        "x @ w.t() + b": lambda x, w, b: x @ w.t() + b,
    }
    eagerly(F.linear, x, subject.new(4, 8), bias)
    for call, function in list(calls.items())[:3]:
        got = function(x, subject.new(4, 8), bias)
        subject.same(call, plain_of(subject, got), expected, loosely=True)

    def inputs() -> tuple[Any, ...]:
        return x.clone().requires_grad_(), subject.new(4, 8), bias.clone().requires_grad_()

    each_applies(subject, calls, inputs, loosely=True)


@check("compile", "nested wrappers: wrong gradients, wrong types or wrong order of the tensors inside", kinds=VALUED)
def nests_compile(subject: Subject) -> None:
    """An instance inside ``lamina.LoggingTensor``, and two such operands, one nested and one not: eager and compiled
    agree. Compilers take nests apart depth first, and put them together again by the classes' own methods."""
    from ...subclasses.logging_tensor import LoggingTensor

    needs_the_protocol(subject.new(4, 8))
    calls = {
        "LoggingTensor(x) * p": lambda x, p: x * p,
        "F.linear(p, LoggingTensor(x))": lambda x, p: F.linear(p, x),
    }

    def inputs() -> tuple[Any, ...]:
        return LoggingTensor(subject.new(4, 8)).requires_grad_(), subject.plain(4, 8, seed=2).requires_grad_()

    def with_another() -> tuple[Any, ...]:
        return inputs()[0], subject.new(6, 8, seed=1, grad=True)

    each_applies(subject, calls, inputs, loosely=True)
    each_applies(subject, {"LoggingTensor(x) @ y.t()": lambda x, y: x @ y.t()}, with_another, loosely=True)
