"""When a compiled function is compiled again, and when it must not be."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_type_hints

import torch
import torch.nn.functional as F

from ...subclasses.core.private import mark_dynamic
from ..check import check
from ..graphs import GraphCounter, compiled, context_of, eagerly, is_wrapper, rebuilt, same_as_eager
from ..outcome import KnownLimit, MismatchError, NotApplicable
from ..subject import VALUED, Subject, inner_tensors

MARKED_NEST = (
    "Dynamo makes the size of a wrapper inside a wrapper a constant, and then refuses the mark that mark_dynamic puts "
    "there: torch 2.13, any two wrappers; dynamic=True works"
)


def _product(x: Any, p: torch.Tensor) -> torch.Tensor:
    return F.linear(p, x) * 2


@check("compile", "each new instance is compiled anew: contexts are compared by identity", kinds=VALUED)
def equal_instances_share_a_graph(subject: Subject) -> None:
    """Instances of equal metadata, other values, a detached one and a copy run the graph of the first."""
    counter = GraphCounter()
    call, p = compiled(_product, backend=counter), subject.plain(3, 8, seed=9)
    first = subject.new(4, 8)
    eagerly(_product, first, p)
    for instance in (first, subject.new(4, 8, seed=1), first.detach(), subject.new(4, 8, seed=2)):
        call(instance, p)
    if counter.graphs != 1:
        raise MismatchError("compiled f(x), of four instances alike", "1 graph", f"{counter.graphs} graphs")


@check(
    "compile",
    "metadata of the wrapper are not guarded: a graph made for other settings runs, silently wrong",
    kinds=VALUED,
)
def changed_context_is_compiled_anew(subject: Subject) -> None:
    """An instance whose flatten context differs gets a graph of its own, and the first one's afterwards runs without
    another. Tried: other dtypes, views, and each simple value in the context changed."""
    instance, p = subject.new(4, 8), subject.plain(3, 8, seed=9)
    context = context_of(instance)
    tried = 0
    for label, other in _variants(subject, instance, context):
        if _same(context_of(other), context):
            continue
        p_other = p.to(other.dtype)
        try:
            expected = eagerly(_product, other, p_other)
        except NotApplicable:
            continue
        tried += 1
        counter = GraphCounter()
        call = compiled(_product, backend=counter)
        call(instance, p)
        same_as_eager(
            subject, f"compiled F.linear(p, {label}) * 2, first called with x", call(other, p_other), expected
        )
        call(instance, p)
        if counter.graphs > 2:
            raise MismatchError(f"compiled f(x), f({label}), f(x)", "2 graphs at most", f"{counter.graphs} graphs")
    if not tried:
        raise NotApplicable("no instance with another context could be made: it has none, or only one value")


def _variants(subject: Subject, instance: Any, context: Any) -> Iterator[tuple[str, Any]]:
    for label, other in _changed(instance, context):
        yield label, other
    makes: dict[str, Any] = {
        "x.to(torch.bfloat16)": lambda: instance.to(torch.bfloat16),
        "make(p.double())": lambda: subject.new(4, 8, dtype=torch.float64),
        "make(p.t()).t()": lambda: subject.new(8, 4).t(),
        "x[1:5]": lambda: subject.new(6, 8)[1:5],
    }
    for label, make in makes.items():
        try:
            made = make()
        except Exception:  # noqa: BLE001 - the class has no such instances: other checks ask for them
            continue
        if subject.is_instance(made):
            yield label, made


def _changed(instance: Any, context: Any) -> Iterator[tuple[str, Any]]:
    """Instances over the same inner tensors whose context differs in one simple value, where the class takes it."""
    entries = list(context) if isinstance(context, (tuple, list)) else [context]
    for index, entry in enumerate(entries):
        for value in _others(entry):
            entries_now = [*entries[:index], value, *entries[index + 1 :]]
            new = type(context)(entries_now) if type(context) in (tuple, list) else value
            try:
                other = rebuilt(instance, new)
                usable = _alike(other, instance) and not _same(other.__tensor_flatten__()[1], context)
            except Exception:  # noqa: BLE001 - not every value makes a sound instance
                continue
            if usable:
                yield f"x with {value!r} in its context", other


def _alike(other: Any, instance: Any) -> bool:
    """Whether it has the same class and metadata."""
    return type(other) is type(instance) and other.shape == instance.shape and other.dtype == instance.dtype


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, Enum):
        return [each for each in type(value) if each is not value][:2]
    if isinstance(value, float):
        return [value * 2 + 1]
    return [value + 1] if isinstance(value, int) else []


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


@check("compile", "an optional inner tensor appears or vanishes, and the graph made without it runs on", kinds=VALUED)
def optional_inner_tensors_are_guarded(subject: Subject) -> None:
    """An inner tensor that may be None: flatten lists it only while it is there, and an instance with it doesn't run
    the graph of one without."""
    instance, p = subject.new(4, 8), subject.plain(3, 8, seed=9)
    context_of(instance)
    optional = _optional(instance)
    if not optional:
        raise NotApplicable("no inner tensor is declared as optional, or is there and may be None")
    for name in optional:
        without = rebuilt(instance, context_of(instance))
        setattr(without, name, None)
        if name in without.__tensor_flatten__()[0]:
            raise MismatchError(f"x.__tensor_flatten__(), x.{name} being None", f"no {name}", f"it lists {name}")
        expected = [eagerly(_product, each, p) for each in (without, instance, without)]
        call = compiled(_product)
        runs = zip(("without", "with", "without"), (without, instance, without), expected, strict=True)
        for label, each, wanted in runs:
            same_as_eager(subject, f"compiled F.linear(p, x) * 2, {label} {name}", call(each, p), wanted)


def _optional(instance: Any) -> list[str]:
    try:
        hints = get_type_hints(type(instance))
    except (NameError, TypeError):
        hints = {}
    declared = getattr(type(instance), "optional_tensor_data_names", [])
    names = instance.__tensor_flatten__()[0]
    return [name for name in names if type(None) in getattr(hints.get(name), "__args__", ()) or name in declared]


@check("compile", "the context can't be hashed, or has other pickles each time: compile caches miss, or fail")
def context_suits_the_compile_cache(subject: Subject) -> None:
    """The flatten context is made of values: equal for equal instances, hashed alike, with the same pickle, which
    gives an equal one back. Sets have another order in each process."""
    context, again = context_of(subject.new(4, 8)), context_of(subject.new(4, 8, seed=1))
    if not _same(context, again):
        raise MismatchError("contexts of two instances alike", context, again)
    try:
        hashes = hash(context), hash(again)
    except TypeError as error:
        raise MismatchError("hash(x.__tensor_flatten__()[1])", "a hash", error) from None
    if hashes[0] != hashes[1]:
        raise MismatchError("hash of equal contexts", str(hashes[0]), str(hashes[1]))
    unordered = [each for each in _entries(context) if isinstance(each, (set, frozenset)) and len(each) > 1]
    if unordered:
        raise MismatchError("x.__tensor_flatten__()[1]", "values in a fixed order", unordered[0])
    stored = pickle.dumps(context)
    if pickle.dumps(again) != stored:
        raise MismatchError("pickles of two equal contexts", "the same bytes", "others")
    if not _same(pickle.loads(stored), context):
        raise MismatchError("pickle.loads(pickle.dumps(context))", context, pickle.loads(stored))


def _entries(context: Any) -> Iterator[Any]:
    yield context
    if isinstance(context, (tuple, list)):
        for each in context:
            yield from _entries(each)
    elif hasattr(context, "__dict__") and not isinstance(context, (type, Enum)):
        for each in vars(context).values():
            yield from _entries(each)


@check("compile", "settings that the context leaves out are lost when a tracer rebuilds the instance")
def context_holds_every_setting(subject: Subject) -> None:
    """What a tracer puts together again, from inner tensors and context, has the attributes of the original: one that
    is not in the context has its default there, and the graph computes with that."""
    instance = subject.new(4, 8)
    other = rebuilt(instance, context_of(instance))
    names = instance.__tensor_flatten__()[0]
    for name, value in vars(instance).items():
        if name in names or not isinstance(value, (bool, int, float, str, Enum, torch.dtype, tuple)):
            continue
        got = vars(other).get(name, "no such attribute")
        if not _same(got, value):
            raise MismatchError(f"{name} of a rebuilt instance", value, got)


@check(
    "compile",
    "each batch size is compiled anew under dynamic=True, or fails: inner tensors have other shapes",
    kinds=VALUED,
)
def changed_batch_shares_a_graph(subject: Subject) -> None:
    """``dynamic=True``: activations of any batch with an instance as the weight, and instances of any number of rows,
    each in one graph. ``unflatten`` has to use the outer size that it is given, which may be symbolic."""
    _one_graph(
        subject,
        "F.linear(p, x), dynamic=True, p of 3, 5 and 9 rows",
        lambda rows: (subject.new(4, 8), subject.plain(rows, 8, seed=9)),
        dynamic=True,
    )
    _one_graph(
        subject,
        "F.linear(p, x), dynamic=True, x of 5, 7 and 11 rows",
        lambda rows: (subject.new(rows + 2, 8), subject.plain(3, 8, seed=9)),
        dynamic=True,
    )


@check("compile", "mark_dynamic on an instance or an activation fails, or is ignored", kinds=VALUED)
def marked_batch_shares_a_graph(subject: Subject) -> None:
    """A dim that is marked as dynamic, of an activation beside an instance, and of an instance, has one graph for all
    sizes; export and serving code mark them."""

    def activations(rows: int) -> tuple[Any, ...]:
        p = subject.plain(rows, 8, seed=9)
        mark_dynamic(p, 0)
        return subject.new(4, 8), p

    def instances(rows: int) -> tuple[Any, ...]:
        x = subject.new(rows + 2, 8)
        mark_dynamic(x, 0)
        return x, subject.plain(3, 8, seed=9)

    _one_graph(subject, "F.linear(p, x), rows of p marked, 3, 5 and 9", activations)
    try:
        _one_graph(subject, "F.linear(p, x), rows of x marked, 5, 7 and 11", instances)
    except RuntimeError as error:
        if "Constraints violated" in str(error) and any(map(is_wrapper, inner_tensors(subject.new(4, 8)))):
            raise KnownLimit(MARKED_NEST) from error
        raise


def _one_graph(subject: Subject, label: str, inputs: Any, **options: Any) -> None:
    """Three sizes, computed as eagerly by one graph. No size is that of another dim, or of a group: torch would take
    them for one."""
    counter = GraphCounter()
    sizes = [inputs(rows) for rows in (3, 5, 9)]
    expected = [eagerly(_product, *each) for each in sizes]
    call = compiled(_product, backend=counter, **options)
    for each, wanted in zip(sizes, expected, strict=True):
        same_as_eager(subject, f"compiled {label}", call(*each), wanted, loosely=True)
    if counter.graphs != 1:
        raise MismatchError(f"compiled {label}", "1 graph", f"{counter.graphs} graphs")
