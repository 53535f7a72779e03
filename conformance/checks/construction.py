"""How instances come into being, and whose result an op is: under modes, on other devices, of a subclass, shared."""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...subclasses.core.private import (
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    disabled_torch_function,
    map_nested,
)
from ..check import check
from ..inside import inner_tensors, leaves_of
from ..outcome import MismatchError, NotApplicable
from ..structure import check_structure, rebuilt, same_bits, structure_of
from ..subject import Kind, Subject
from .foreign import ForeignTensor

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


class _Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _PassingFunctions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _made_within(subject: Subject, scope: AbstractContextManager[Any], call: str) -> None:
    """An instance made within ``scope`` is what it is outside."""
    expected, plain = subject.new(4, 8), subject.plain(4, 8)
    torch.manual_seed(0)  # as for ``expected``
    with scope:
        got = subject.make(plain)
    check_structure(subject, call, got, expected)
    subject.same(call, got, subject.values(expected))


@check("declaration", "constructors fail or give a plain tensor while a dispatch mode is on")
def made_within_a_dispatch_mode(subject: Subject) -> None:
    """``make`` gives the same instance while a dispatch mode is on that hands each op on: a logger, a counter."""
    scope: Any = _Passing
    _made_within(subject, scope(), "make(plain) within a TorchDispatchMode")


@check("declaration", "constructors fail or give a plain tensor while a function mode is on")
def made_within_a_function_mode(subject: Subject) -> None:
    """``make`` gives the same instance while a function mode is on that hands each call on."""
    _made_within(subject, _PassingFunctions(), "make(plain) within a TorchFunctionMode")


@check("declaration", "constructors mix devices when there is a default device", kinds=VALUED)
def made_within_a_default_device(subject: Subject) -> None:
    """``make`` of a tensor on its own device gives the same instance while the default device is another one.

    Models are built within ``torch.device("meta")``; what a constructor makes beside its operand has to follow that.
    """
    _made_within(subject, torch.device("meta"), 'make(plain) within torch.device("meta")')


@check("declaration", "models can't be built on the meta device")
def made_on_the_meta_device(subject: Subject) -> None:
    """``make`` of a meta tensor gives an instance that is on the meta device, with all of its inner tensors."""
    made = subject.make(subject.plain(4, 8).to("meta"))
    call = "make(plain on meta)"
    if not subject.is_instance(made):
        raise MismatchError(call, subject.cls, type(made))
    if not all(leaf.is_meta for leaf in leaves_of(made)):
        raise MismatchError(f"{call}: devices of inner tensors", "meta", [str(leaf.device) for leaf in leaves_of(made)])
    if subject.kind is not Kind.FAKE and (made.device.type != "meta" or tuple(made.shape) != (4, 8)):
        raise MismatchError(call, "shape (4, 8) on meta", f"shape {tuple(made.shape)} on {made.device}")


@check("declaration", "a Parameter of the class can't be built in fake mode")
def made_in_fake_mode(subject: Subject) -> None:
    """Within fake mode ``make`` of a fake tensor gives an instance of fake inner tensors; so does a Parameter of it."""
    expected = subject.new(4, 8)
    with FakeTensorMode():
        made = subject.make(torch.empty(4, 8, device=subject.device))
        parameter = torch.nn.Parameter(made)
    for call, value in (("make(fake)", made), ("nn.Parameter(make(fake))", parameter)):
        check_structure(subject, f"within FakeTensorMode: {call}", value, expected)
        if not all(isinstance(leaf, FakeTensor) for leaf in leaves_of(value)):
            raise MismatchError(f"inner tensors of {call}", "fake tensors", inner_tensors(value))


@check("declaration", "class Child(Wrapper): ops give the parent class, or are unknown")
def a_subclass_works_like_the_class(subject: Subject) -> None:
    """An empty ``class Child(cls)`` can be put together, has the same values, and stays a Child where the class stays.

    Constructors and handlers that name their class, instead of asking for it, lose the child.
    """
    instance = subject.new(4, 8)
    child = type("Child", (type(instance),), {"__module__": __name__})
    made = rebuilt(instance, cls=child)
    if type(made) is not child:
        raise MismatchError("class Child(cls): ...; Child.__tensor_unflatten__(...)", child, type(made))
    for call, function in _OPS.items():
        try:
            expected = function(instance)
        except Exception:  # noqa: BLE001 - what the class refuses its child may refuse
            continue
        got = function(made)
        if type(got) is not (child if type(expected) is type(instance) else type(expected)):
            raise MismatchError(f"Child instance, {call}: the class", child, type(got))
        subject.same(f"Child instance, {call}", got, subject.values(expected))


_OPS: dict[str, Any] = {
    "detach()": lambda x: x.detach(),
    "clone()": lambda x: x.clone(),
    "+ 1": lambda x: x + 1,
    "relu()": lambda x: x.relu(),
}


@check("declaration", "the gradient of what was wrapped is None", kinds=VALUED)
def construction_cuts_no_gradient_silently(subject: Subject) -> None:
    """``make`` of a tensor that requires grad: a gradient arrives there, or an error says that it would be cut.

    Else training goes on without a part of the model.
    """
    plain = subject.plain(4, 8).requires_grad_()
    try:
        made = subject.make(plain)
    except (RuntimeError, ValueError) as error:
        if "grad" not in str(error):
            raise
        return
    call = "make(p).sum().backward(); p.grad"
    if not made.requires_grad:
        raise MismatchError("make(p).requires_grad, where p requires grad", "True, or an error that says so", False)
    made.sum().backward()
    if plain.grad is None:
        raise MismatchError(call, "a gradient, or an error from make", None)
    subject.same(call, plain.grad, torch.ones_like(plain), loosely=True)


@check("declaration", "changing one of two wrappers changes the other", kinds=VALUED)
def copies_share_no_memory(subject: Subject) -> None:
    """``clone()`` and, where there is one, ``from_plain`` give instances with memory of their own: in every leaf."""
    source, instance = subject.plain(4, 8), subject.new(4, 8)
    pairs: list[tuple[str, Any, Any]] = [("x.clone()", instance.clone(), instance)]
    from_plain = getattr(subject.cls, "from_plain", None)
    if from_plain is not None:
        first = from_plain(source)
        pairs += [("from_plain(t), and t", first, source), ("from_plain(t), twice", from_plain(source), first)]
    for call, one, other in pairs:
        addresses = {leaf.untyped_storage().data_ptr() for leaf in leaves_of(other) if leaf.numel()}
        if subject.is_instance(one) and any(leaf.untyped_storage().data_ptr() in addresses for leaf in leaves_of(one)):
            raise MismatchError(f"{call}: memory of the inner tensors", "of its own", "shared")


@check("declaration", "two wrappers share an inner tensor, one is changed, the other is stale", kinds=VALUED)
def wrappers_of_one_inner_tensor_agree(subject: Subject) -> None:
    """Of two instances around the same inner tensors one is written to: the other reads the same, or the op raises."""
    one = subject.new(4, 8)
    other = rebuilt(one)
    try:
        one.mul_(2)
    except (RuntimeError, NotImplementedError, ValueError):
        return
    call = "y = unflatten(*flatten(x)); x.mul_(2); y"
    subject.same(call, other, subject.values(one))


@check("declaration", "requires_grad appears on an inner tensor, or the class is lost by a no-op")
def idle_ops_give_new_instances(subject: Subject) -> None:
    """Ops that change nothing give a new instance or a new tensor, never an inner tensor itself; a ``detach()`` is of
    the class, with the same context and inner values.

    Autograd writes ``requires_grad`` and ``grad_fn`` on what a handler returns.
    """
    instance = subject.new(4, 8, grad=True)
    check_structure(subject, "x.detach()", instance.detach(), instance)
    if not same_bits(instance.detach(), instance):
        raise MismatchError("x.detach()", "the same inner tensors", instance.detach())
    for call, function in _NO_OPS.items():
        try:
            result = function(instance)
        except Exception:  # noqa: BLE001 - to refuse it is another matter
            continue
        if any(result is inner for inner in inner_tensors(instance)):
            raise MismatchError(call, "an instance, or a tensor of its own", "the inner tensor itself")
        if any(inner.requires_grad for inner in inner_tensors(instance)):
            raise MismatchError(f"{call}; then requires_grad of the inner tensors of x", False, True)


_NO_OPS: dict[str, Any] = {
    "x.detach()": lambda x: x.detach(),
    "aten.alias(x)": torch.ops.aten.alias.default,
    "x.view(x.shape)": lambda x: x.view(x.shape),
    "x.view_as(x)": lambda x: x.view_as(x),
    "x.expand(x.shape)": lambda x: x.expand(x.shape),
    "x[:]": lambda x: x[:],
    "x.t()": lambda x: x.t(),
    "x + 0": lambda x: x + 0,
    "x.clone()": lambda x: x.clone(),
    "x.double()": lambda x: x.double(),
}


@check("declaration", "the class is lost after an op", kinds=(Kind.TRANSPARENT,))
def results_keep_the_class(subject: Subject) -> None:
    """An op on a transparent instance gives one with the same context: it goes on watching what it is there for."""
    instance = subject.new(4, 8)
    for call, function in {**_NO_OPS, "x @ x.t()": lambda x: x @ x.t(), "x.relu()": lambda x: x.relu()}.items():
        result = function(instance)
        if not subject.is_instance(result):
            raise MismatchError(call, subject.cls, type(result))
        if structure_of(result)[5] != structure_of(instance)[5]:
            raise MismatchError(f"{call}: names and context", repr(structure_of(instance)[5]), structure_of(result)[5])


class AnsweringTensor(ForeignTensor):
    """Answers every op that it takes part in: on its inner tensor. It counts how often it was asked."""

    asked = 0
    __torch_function__ = disabled_torch_function  # else torch makes an instance without its attributes of each result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        AnsweringTensor.asked += 1
        args, kwargs = map_nested(lambda each: each.held if isinstance(each, cls) else each, (args, kwargs or {}))
        return func(*args, **kwargs)


@check("declaration", "RuntimeError with another library's tensor, which would have known what to do", kinds=VALUED)
def another_class_is_asked(subject: Subject) -> None:
    """Beside a wrapper of a class that it does not know, a handler returns NotImplemented or hands the op on: that
    class is asked, and the result is right. To raise, or to read the other's memory as a plain tensor's, is wrong.
    """
    reference, other = subject.reference(subject.plain(4, 8)), subject.plain(4, 8, seed=1)
    for call, function in _PAIRS.items():
        instance = subject.new(4, 8)
        try:
            function(instance, other)
        except Exception:  # noqa: BLE001 - not an op of this class
            continue
        before = AnsweringTensor.asked
        got = function(instance, AnsweringTensor(other))
        if AnsweringTensor.asked == before:
            raise MismatchError(f"{call}, y of another wrapper class", "that class is asked", "it is not asked")
        got = subject.values(got) if subject.is_instance(got) else got
        subject.same(f"{call}, y of another wrapper class", got, function(reference, other), loosely=True)
        return
    raise NotApplicable("no op of two operands works on a plain one")


_PAIRS: dict[str, Any] = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "F.linear(y, x)": lambda x, y: torch.nn.functional.linear(y, x),
}


@check("declaration", "x == y is a plain False: a TypeError was swallowed", kinds=VALUED)
def no_comparison_swallows_an_error(subject: Subject) -> None:
    """Comparisons give a tensor or raise, whatever is compared: a plain tensor, a number, another dtype, a broadcast
    one, a wrapper of a class that declines. Python makes a plain ``False`` of a TypeError, or of NotImplemented.
    """
    reference, plain = subject.reference(subject.plain(4, 8)), subject.plain(4, 8, seed=1)
    others: dict[str, Any] = {
        "a plain tensor": plain,
        "an instance": subject.new(4, 8, seed=1),
        "a number": 0.5,
        "an integer tensor": plain.long(),
        "a row": plain[0],
        "a tensor of another shape": plain[:, :3],
        "a wrapper of another class": ForeignTensor(plain),
    }
    for text, other in others.items():
        for compare in _COMPARISONS:
            call = f"operator.{compare.__name__}(x, {text})"
            _compares(subject, call, compare, (subject.new(4, 8), reference, other))


def _compares(subject: Subject, call: str, compare: Any, operands: tuple[Any, torch.Tensor, Any]) -> None:
    instance, reference, other = operands
    try:
        got = compare(instance, other)
    except Exception:  # noqa: BLE001 - an op that the class lacks is no matter here: it says so
        return
    if not isinstance(got, torch.Tensor):
        raise MismatchError(call, "a tensor of bools, or an error", repr(got))
    if not isinstance(other, ForeignTensor):
        subject.same(call, got, compare(reference, subject.values(other)))
