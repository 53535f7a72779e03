"""Memory: what is freed, what grows, what is held twice."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import torch

from ...subclasses.core.private import frames_compiled, storage_id
from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Subject, leaves_of
from .printing import VALUED

Watched = list["weakref.ref[torch.Tensor]"]


@contextmanager
def _collector_off() -> Iterator[None]:
    """What is freed inside is freed by its reference count alone. A GPU's memory fills long before the collector
    runs."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _alive(watched: Watched) -> list[str]:
    return [f"{type(tensor).__name__}{list(tensor.shape)}" for ref in watched if (tensor := ref()) is not None]


def _watch(*tensors: Any) -> Watched:
    """The tensors, and all leaves in them."""
    return [weakref.ref(each) for tensor in tensors for each in (tensor, *leaves_of(tensor))]


def _instance(subject: Subject) -> Watched:
    return _watch(subject.new(4, 8))


def _results(subject: Subject) -> Watched:
    instance = subject.new(4, 8)
    return _watch(instance, instance.detach(), instance.t(), instance + 1, torch.mm(subject.plain(3, 4), instance))


def _parameter(subject: Subject) -> Watched:
    parameter: Any = torch.nn.Parameter(subject.new(4, 8))
    parameter.data = parameter.detach().clone()
    return _watch(parameter)


def _graph(subject: Subject) -> Watched:
    """With a backward that ran, one that did not, and a gradient."""
    leaf = subject.new(4, 8, grad=True)
    product = torch.nn.functional.linear(subject.plain(3, 8), leaf)
    product.square().sum().backward()
    pending = torch.nn.functional.linear(subject.plain(3, 8), leaf).square()
    return _watch(leaf, product, pending, *([] if leaf.grad is None else [leaf.grad]))


def _failed(subject: Subject) -> Watched:
    """An op that raised: neither its error nor a table of the class holds its arguments."""
    instance = subject.new(4, 8)
    with suppress(RuntimeError, TypeError):
        torch.mm(instance, subject.plain(3, 3))
    return _watch(instance)


def _freed(subject: Subject, call: str, run: Callable[[Subject], Watched]) -> None:
    run(subject)  # what a first call leaves in caches is no leak
    with _collector_off():
        watched = run(subject)
        if left := _alive(watched):
            raise MismatchError(f"del of {call}, the collector off", "nothing left", left)


@check("memory", "reference cycles keep instances alive until the collector runs")
def instances_are_freed_at_once(subject: Subject) -> None:
    """An instance, a Parameter and the leaves in them are freed with the last reference, the collector off: no cycle
    from an instance to itself, its metadata or its handlers."""
    _freed(subject, "x = make(plain)", _instance)
    _freed(subject, "nn.Parameter(x), after p.data = other", _parameter)


@check("memory", "reference cycles keep results of ops alive")
def results_are_freed_at_once(subject: Subject) -> None:
    """Results of ops, views among them, and their arguments are freed with the last reference, the collector off; those
    of an op that raised, too."""
    _freed(subject, "x, x.detach(), x.t(), x + 1, torch.mm(a, x)", _results)
    _freed(subject, "x, after an op that raised", _failed)


@check("memory", "an autograd graph through the class is never freed")
def graphs_are_freed_at_once(subject: Subject) -> None:
    """A leaf, its gradient, the results of a forward and what a graph has saved are freed with the last reference, the
    collector off: each step of a training would keep its activations else."""
    _freed(subject, "x, F.linear(a, x), x.grad and their graphs", _graph)


ROUNDS = 25
INTERVALS = 8


def _blocks_after(subject: Subject, leaf: Any, activations: torch.Tensor) -> int:
    """Python's memory blocks after some rounds: each object is one, or more."""
    for _ in range(ROUNDS):
        torch.nn.functional.linear(activations, leaf).sum().backward()
        leaf.grad = None
        leaf.detach().t()
        torch.mm(subject.plain(3, 4), leaf.detach().clone())
        repr(leaf)
    gc.collect()
    return sys.getallocatedblocks()


@check("memory", "memory grows with the number of ops")
def nothing_grows_over_many_ops(subject: Subject) -> None:
    """After 25 rounds of a forward, a backward, views and prints no more Python objects are alive than before, sooner
    or later: no list of what was seen, no cache with a key of its own for each call."""
    leaf, activations = subject.new(4, 8, grad=True), subject.plain(3, 8)
    gc.freeze()  # what was there before need not be looked through each time
    try:
        blocks = [_blocks_after(subject, leaf, activations)]
        # A leak grows each time. What fills slowly, as Python's own caches do, is fewer objects each time: seen were 2
        # a round at most in the third interval; one left by each op would be 8.
        while len(blocks) < 2 or (len(blocks) <= INTERVALS and blocks[-1] - blocks[-2] >= 4 * ROUNDS):
            blocks.append(_blocks_after(subject, leaf, activations))
    finally:
        gc.unfreeze()
    growth = [after - before for before, after in pairwise(blocks)]
    if growth[-1] >= 4 * ROUNDS:
        call = f"{ROUNDS} rounds of forward, backward, views and repr, {INTERVALS} times"
        raise MismatchError(call, "no more objects alive", f"{', '.join(map(str, growth))} more blocks of memory")


@check("memory", "detach() or a view copies an inner tensor")
def aliases_share_the_inner_tensors(subject: Subject) -> None:
    """``detach``, ``alias``, ``nn.Parameter`` and unflattening share every leaf's memory with the instance; a transpose
    that is of the class shares the largest. A copy doubles a model when its parameters are wrapped."""
    instance = subject.new(4, 8)
    storages = {storage_id(leaf) for leaf in leaves_of(instance)}
    for call, alias in (
        ("x.detach()", instance.detach()),
        ("x.view_as(x)", instance.view_as(instance)),
        ("nn.Parameter(x)", torch.nn.Parameter(instance)),
    ):
        own = [leaf for leaf in leaves_of(alias) if storage_id(leaf) not in storages]
        if own and subject.is_instance(alias):
            raise MismatchError(f"leaves of {call}", "those of x, or views of them", own)
    transposed = instance.t()
    if subject.is_instance(transposed):
        largest = max(leaves_of(transposed), key=lambda leaf: leaf.numel() * leaf.element_size())
        if storage_id(largest) not in storages:
            raise MismatchError("the largest leaf of x.t()", "a view of one of x", largest)


def _held(instance: Any) -> Iterator[torch.Tensor]:
    """All tensors without inner tensors that an instance refers to, through containers, too."""
    todo, seen = [instance], set[int]()
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, (type, str)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if len(leaves_of(value)) == 1 and leaves_of(value)[0] is value:
                yield value
            todo += list(vars(value).values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo += list(value)
        elif isinstance(value, dict):
            todo += list(value.values())


@check("memory", "memory held beside the tensors that __tensor_flatten__ names")
def all_memory_is_in_the_leaves(subject: Subject) -> None:
    """All tensors that an instance refers to are leaves that ``__tensor_flatten__`` names, or views of them: also after
    some ops. What is held beside them follows no ``.to()``, is in no checkpoint, and no report of memory counts it."""
    instance = subject.new(4, 8)
    if not hasattr(instance, "__tensor_flatten__"):
        raise NotApplicable(f"{subject.cls.__name__} has no __tensor_flatten__")
    torch.nn.functional.linear(subject.plain(3, 8), instance)
    instance.detach()
    storages = {storage_id(leaf) for leaf in leaves_of(instance)}
    hidden = [tensor for tensor in _held(instance) if storage_id(tensor) not in storages]
    if hidden:
        raise MismatchError("tensors that x holds beside its leaves", [], hidden)


def _bytes(instance: Any) -> int:
    storages = {storage_id(leaf): leaf.untyped_storage().nbytes() for leaf in leaves_of(instance)}
    return sum(storages.values())


@check("memory", "a copy of a slice keeps the memory of the whole", kinds=VALUED)
def a_copy_of_a_slice_holds_the_slice_only(subject: Subject) -> None:
    """``x[:4].clone()`` holds no more memory than an instance of that size: else a shard of a large weight, or a row
    of it, keeps all of it alive."""
    part = subject.new(64, 8)[:4].clone()
    allowed = max(_bytes(subject.new(4, 8)), 4 * 8 * part.element_size())
    if _bytes(part) > allowed:
        raise MismatchError("bytes held by x[:4].clone(), x of shape (64, 8)", f"{allowed} at most", _bytes(part))


@check("memory", "ops compile small functions of their own, and are slower for it")
def ops_do_not_compile(subject: Subject) -> None:
    """No op compiles anything by itself: a compilation takes seconds, guards on what the user does not see, and is the
    caller's to decide."""
    before = frames_compiled()
    subject.new(4, 8, grad=True)
    _graph(subject)
    _results(subject)
    if (frames := frames_compiled() - before) > 0:
        raise MismatchError("make(plain), F.linear(a, x), backward, x + 1", "nothing compiled", f"{frames} frames")
