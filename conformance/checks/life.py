"""Copying an instance, and making a Parameter of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..check import check
from ..outcome import MismatchError
from ..subject import VALUED, Kind, Subject, addresses, leaves_of


def overlap(one: Any, other: Any) -> bool:
    """Whether plain tensors inside the two start at one address."""
    return bool(set(addresses(one)) & set(addresses(other)))


def memory(instance: Any) -> set[int]:
    """Where the storages of the plain tensors inside begin."""
    leaves = [leaf for leaf in leaves_of(instance) if leaf.numel() and not leaf.is_meta]
    return {leaf.untyped_storage().data_ptr() for leaf in leaves}


@check("life", "copy.deepcopy gives a plain tensor, or one that shares memory")
def deepcopy_keeps_the_instance(subject: Subject) -> None:
    """A deep copy is the same in class, context and bits, requires grad if the original does, and has memory of its
    own: models are copied for averages, for every worker and before each experiment."""
    for grad in (False, True):
        original = subject.new(4, 8, grad=grad)
        copied = copy.deepcopy(original)
        subject.kept("copy.deepcopy(w)", copied, original)
        if subject.kind is not Kind.FAKE and overlap(copied, original):
            raise MismatchError("copy.deepcopy(w)", "memory of its own", "tensors at addresses of the original")


@check("life", "copy.copy loses the class")
def copy_keeps_the_instance(subject: Subject) -> None:
    """A shallow copy is a new object of the class, over the same memory, as that of a plain tensor is."""
    for grad in (False, True):
        original = subject.new(4, 8, grad=grad)
        copied = copy.copy(original)
        subject.kept("copy.copy(w)", copied, original)
        if copied is original or addresses(copied) != addresses(original):
            raise MismatchError("copy.copy(w)", "another object over the memory of the original", copied)


@check("life", "the copy of a view has the values of its base", kinds=VALUED)
def copied_views_keep_their_values(subject: Subject) -> None:
    """A transposed, sliced or selected instance is copied as what it shows, not as the memory it looks into: shards
    and tied heads are such views."""
    instance, plain = subject.new(4, 8), subject.reference(subject.plain(4, 8))
    views: dict[str, Callable[[Any], Any]] = {
        "w.t()": lambda w: w.t(),
        "w[1:3]": lambda w: w[1:3],
        "w[:, 4:]": lambda w: w[:, 4:],
        "w[2]": lambda w: w[2],
    }
    for call, view in views.items():
        shown = view(instance)
        if subject.is_instance(shown):
            for text, copied in ((f"copy.deepcopy({call})", copy.deepcopy(shown)), (f"{call}.clone()", shown.clone())):
                subject.same(text, copied, view(plain))
                if overlap(copied, instance):
                    raise MismatchError(text, "memory of its own", "tensors at addresses of the original")


@check("life", "deepcopy drops .grad", kinds=VALUED)
def deepcopy_keeps_the_gradient(subject: Subject) -> None:
    """``.grad`` is copied with the tensor: a copy of a model amid gradient accumulation trains on as the original."""
    original = subject.new(4, 8, grad=True)
    original.grad = subject.plain(4, 8, seed=1)
    copied = copy.deepcopy(original).grad
    if copied is None or copied is original.grad:
        raise MismatchError("copy.deepcopy(w).grad", "a copy of w.grad", copied)
    subject.same("copy.deepcopy(w).grad", copied, original.grad)
    if type(copied) is not type(original.grad):
        raise MismatchError("type(copy.deepcopy(w).grad)", type(original.grad), type(copied))


@check("life", "deepcopy tears apart what was shared", kinds=VALUED)
def deepcopy_keeps_what_is_shared(subject: Subject) -> None:
    """What is one object stays one in a deep copy, and two over one memory stay so: tied weights. A view
    of a representation may become a tensor of its own."""
    original = subject.new(4, 8)
    one, same, alias = copy.deepcopy([original, original, original.detach()])
    if one is not same:
        raise MismatchError("copy.deepcopy([w, w])", "one object, twice", "two objects")
    if addresses(alias) != addresses(one):
        raise MismatchError("copy.deepcopy([w, w.detach()])", "two over one memory", "each with memory of its own")
    view = original[1:3]
    one, shown = copy.deepcopy([original, view])
    if subject.kind is Kind.TRANSPARENT and memory(view) & memory(original) and not memory(shown) & memory(one):
        raise MismatchError("copy.deepcopy([w, w[1:3]])", "two over one memory", "each with memory of its own")
    subject.same("copy.deepcopy([w, w[1:3]])[1]", shown, subject.values(view))


@check("life", "deepcopy cuts the graph silently")
def deepcopy_of_a_result_is_refused(subject: Subject) -> None:
    """Of a tensor with a ``grad_fn`` there is no deep copy: torch refuses it, since the copy would be cut off from the
    graph without a word."""
    result = subject.new(4, 8, grad=True).clone()
    if result.grad_fn is None:
        raise MismatchError("w.clone().grad_fn, where w requires grad", "a node", None)
    try:
        copied = copy.deepcopy(result)
    except RuntimeError:
        return
    raise MismatchError(
        "copy.deepcopy(w.clone()), where w requires grad", "a RuntimeError, as for plain tensors", copied
    )


@check("life", "a deepcopied Parameter loses its attributes, or is no Parameter")
def a_copied_parameter_keeps_its_attributes(subject: Subject) -> None:
    """Frameworks mark parameters (``p.is_shard``, ``p.no_decay``): the marks go with a deep copy, and so does
    being a Parameter."""
    for grad in (True, False):
        parameter: Any = nn.Parameter(subject.new(4, 8), requires_grad=grad)
        parameter.no_decay, parameter.names_of_axes = True, ["out", "in"]
        copied: Any = copy.deepcopy(parameter)
        subject.kept("copy.deepcopy(nn.Parameter(w))", copied, parameter)
        if getattr(copied, "no_decay", None) is not True:
            raise MismatchError("copy.deepcopy(p).no_decay, where p.no_decay = True", True, "no such attribute")
        if copied.names_of_axes != ["out", "in"] or copied.names_of_axes is parameter.names_of_axes:
            raise MismatchError("copy.deepcopy(p).names", "a copy of the list", copied.names_of_axes)


@check("life", "a hook of the original fires for the copy", kinds=VALUED)
def hooks_stay_with_the_original(subject: Subject) -> None:
    """A gradient hook is called for the tensor that it was registered with, once, and not for a deep copy of it; a copy
    does not take it away either."""
    original, x = subject.new(4, 8, grad=True), subject.plain(3, 8)
    calls: list[str] = []
    original.register_hook(lambda _: calls.append("hook"))
    original.register_post_accumulate_grad_hook(lambda _: calls.append("post"))
    copied = copy.deepcopy(original)
    F.linear(x, copied).sum().backward()
    if calls:
        raise MismatchError("w.register_hook(f); F.linear(x, copy.deepcopy(w)).sum().backward()", "no call of f", calls)
    F.linear(x, original).sum().backward()
    if sorted(calls) != ["hook", "post"]:
        raise MismatchError("F.linear(x, w).sum().backward(), with two hooks", "a call of each", calls)


@check("life", "type(p)(p.data, requires_grad=...) breaks")
def a_parameter_is_rebuilt_from_an_instance(subject: Subject) -> None:
    """``nn.Parameter(w)`` and ``nn.Parameter(p.data)`` keep class and values. Loaders that write ``type(p)(p.data,
    requires_grad=...)`` get the same, or an error; no other values."""
    original = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8))
    parameter = nn.Parameter(original)
    for call, rebuilt in (
        ("nn.Parameter(w)", parameter),
        ("nn.Parameter(nn.Parameter(w).data, requires_grad=False)", nn.Parameter(parameter.data, requires_grad=False)),
    ):
        if not isinstance(rebuilt, nn.Parameter) or type(rebuilt) is not type(original):
            raise MismatchError(call, f"a Parameter that is a {subject.cls.__name__}", rebuilt)
        subject.same(call, rebuilt, plain)
    call = "type(p)(p.data, requires_grad=False)"
    rebuild: Any = type(parameter)
    try:
        again = rebuild(parameter.data, requires_grad=False)
    except (TypeError, ValueError, RuntimeError):
        return
    if again.requires_grad:
        raise MismatchError(f"{call}.requires_grad", False, True)
    subject.same(call, again, plain)


@check("life", "swap_tensors exchanges only the outer tensors", kinds=VALUED)
def swapped_tensors_exchange_their_values(subject: Subject) -> None:
    """``torch.utils.swap_tensors``, by which torch converts modules, exchanges class, values and requires_grad, with
    another instance and with a plain tensor."""
    one, other = nn.Parameter(subject.new(4, 8)), nn.Parameter(subject.new(4, 8, seed=1))
    first, second = (subject.reference(subject.plain(4, 8, seed=seed)) for seed in (0, 1))
    torch.utils.swap_tensors(one, other)
    subject.same("swap_tensors(w, other); w", one, second)
    subject.same("swap_tensors(w, other); other", other, first)
    plain = nn.Parameter(subject.plain(4, 8, seed=2))
    torch.utils.swap_tensors(one, plain)
    if not subject.is_instance(plain) or subject.is_instance(one):
        raise MismatchError("swap_tensors(w, plain)", "that the two exchange their classes", [type(one), type(plain)])
    subject.same("swap_tensors(w, plain); plain", plain, second)
    subject.same("swap_tensors(w, plain); w", one, subject.plain(4, 8, seed=2))
