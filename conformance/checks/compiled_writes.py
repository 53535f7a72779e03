"""Writes and views in a compiled function: what it does to its inputs, and what its results share with them."""

from __future__ import annotations

from typing import Any

import torch

from ..check import check
from ..graphs import agree, compiled, context_of, eagerly, plain_of, rebuilt, same_as_eager
from ..outcome import KnownLimit, MismatchError, NotApplicable
from ..subject import VALUED, Subject
from .compiling import each_applies


def _then(write: Any) -> Any:
    """A function that writes to its argument, and then reads it."""

    def run(x: Any) -> Any:
        write(x)
        return x * 1

    return run


@check("compile", "an in-place op on a compiled function's input is lost, or applied twice", kinds=VALUED)
def inputs_are_written(subject: Subject) -> None:
    """After a compiled in-place op, a write through a view and a ``copy_``, the input holds what it holds eagerly."""
    p = subject.plain(4, 8, seed=1)
    calls = {
        "x.mul_(2)": lambda x: x.mul_(2),
        "x.add_(p)": lambda x: x.add_(p),
        "x.copy_(p)": lambda x: x.copy_(p),
        "x[1:3].fill_(0.5)": lambda x: x[1:3].fill_(0.5),
        "x.t().mul_(2)": lambda x: x.t().mul_(2),
    }
    writes = {call: _then(write) for call, write in calls.items()}
    each_applies(subject, writes, lambda: (subject.new(4, 8),), loosely=True)


@check("compile", "a write to a non-contiguous instance leaves outer and inner strides that don't agree", kinds=VALUED)
def non_contiguous_inputs_are_written(subject: Subject) -> None:
    """A transposed and a strided instance, written to in a graph: values, size and strides are those of an eager run.
    A class may refuse such inputs with an error that speaks of contiguous ones, or of a ``clone()``."""
    for label, inputs in (
        ("x = make(p).t()", lambda: (subject.new(8, 4).t(),)),
        ("x = make(p)[:, ::2]", lambda: (subject.new(4, 16)[:, ::2],)),
        ("x = make(p.t())", lambda: (subject.wrap(subject.plain(8, 4).t()),)),
    ):
        if not subject.is_instance(eagerly(inputs)[0]):
            continue
        for call, write in (("x.mul_(2)", lambda x: x.mul_(2)), ("x.add_(x)", lambda x: x.add_(x))):
            try:
                agree(subject, f"{call}, {label}", _then(write), inputs, loosely=True)
            except (NotImplementedError, RuntimeError, ValueError) as error:
                if not any(word in str(error) for word in ("contiguous", "clone()")):
                    raise


@check("compile", "t_() or unsqueeze_() in a compiled function: other geometry than eagerly", kinds=VALUED)
def geometry_is_changed_in_place(subject: Subject) -> None:
    """In-place ops on metadata: of an instance that is made in the graph, and of an input, for which Dynamo leaves the
    graph. Outer geometry and that of the tensors inside never part."""
    changes = {
        "x.t_()": lambda x: x.t_(),
        "x.unsqueeze_(0)": lambda x: x.unsqueeze_(0),
        "x.transpose_(0, 1)": lambda x: x.transpose_(0, 1),
    }
    made = {call.replace("x.", "x.clone().", 1): _on_a_clone(change) for call, change in changes.items()}
    each_applies(subject, made, lambda: (subject.new(4, 8),))
    inputs = {call: _then(change) for call, change in changes.items()}
    each_applies(subject, inputs, lambda: (subject.new(4, 8),), fullgraph=False)


def _on_a_clone(change: Any) -> Any:
    def run(x: Any) -> Any:
        copy = x.clone()
        change(copy)
        return copy * 1

    return run


@check(
    "compile",
    "two inputs that hold one inner tensor, one of them written: the other keeps its old values",
    kinds=VALUED,
)
def inputs_that_share_are_written(subject: Subject) -> None:
    """Both see the write, as they do eagerly; or it raises. Never a silently stale result."""

    def write(x: Any, y: Any) -> Any:
        x.mul_(2)
        return y * 1

    def inputs() -> tuple[Any, ...]:
        x = subject.new(4, 8)
        return x, rebuilt(x, context_of(x))

    wanted = inputs()
    expected = eagerly(write, *wanted)
    changed = inputs()
    try:
        got = compiled(write)(*changed)
    except Exception:  # noqa: BLE001 - loud is allowed
        return
    label = "compiled f(x, y): x.mul_(2); y * 1, where y holds the inner tensors of x"
    for each, other in zip(changed, wanted, strict=True):
        same_as_eager(subject, f"an input after {label}", each, other, loosely=True)
    stale = subject.reference(subject.plain(4, 8))
    if plain_of(subject, got).equal(stale) and not plain_of(subject, expected).equal(stale):
        raise KnownLimit(
            "https://github.com/pytorch/pytorch/issues/114415: inputs that share below wrappers aren't seen"
        )
    subject.same(label, plain_of(subject, got), plain_of(subject, expected), loosely=True)


@check("compile", "a compiled function returns a view that doesn't share with its input", kinds=VALUED)
def returned_views_alias_their_input(subject: Subject) -> None:
    """A view that a graph returns sees later writes to the input where an eager view does: tracers ask for
    ``as_strided``, or replay the view."""
    calls = {
        "x.t()": lambda x: x.t(),
        "x[1:3]": lambda x: x[1:3],
        "x.view(8, 4)": lambda x: x.view(8, 4),
        "x.detach()": lambda x: x.detach(),
    }
    refused: list[NotApplicable] = []
    for call, view in calls.items():
        try:
            _shares(subject, call, view)
        except NotApplicable as reason:
            refused.append(reason)
    if len(refused) == len(calls):
        raise refused[0]


def _shares(subject: Subject, call: str, view: Any) -> None:
    seen, x = subject.new(4, 8), subject.new(4, 8)
    expected = eagerly(view, seen)
    eagerly(lambda: seen.mul_(3))
    got = compiled(view)(x)
    x.mul_(3)
    if type(got) is not type(expected):
        raise MismatchError(f"type(compiled {call})", type(expected), type(got))
    label = f"y = compiled {call}; x.mul_(3); y"
    subject.same(label, plain_of(subject, got), plain_of(subject, expected), loosely=True)


@check("compile", "as_strided, asked for by the tracer, fails or forgets the class", kinds=VALUED)
def own_geometry_can_be_asked_for(subject: Subject) -> None:
    """``as_strided`` with the size, strides and offset that an instance has gives the instance, eagerly and compiled:
    tracers rebuild outputs that alias inputs that way."""
    instance = subject.new(4, 8)
    strides, offset = instance.stride(), instance.storage_offset()

    def same(x: Any) -> Any:
        return torch.as_strided(x, (4, 8), strides, offset)

    got = same(instance)
    subject.same(
        "x.as_strided(x.size(), x.stride(), x.storage_offset())", plain_of(subject, got), plain_of(subject, instance)
    )
    agree(subject, "x.as_strided(x.size(), x.stride(), x.storage_offset())", same, lambda: (subject.new(4, 8),))
