"""Comparing: ``==``, equal, allclose, assert_close, hash; and what Python asks of a container."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..check import check
from ..outcome import MismatchError
from ..subject import Kind, Subject
from .printing import REFUSALS, VALUED, changed_in_its_last


@check("printing", "a == b is a plain False: the operator swallowed a TypeError", kinds=VALUED)
def equality_is_computed(subject: Subject) -> None:
    """``==`` and ``!=`` compare values. Python turns a TypeError from a handler into a plain ``False``."""
    plain, other = subject.reference(subject.plain(4, 8)), subject.reference(subject.plain(4, 8, seed=1))
    instance = subject.new(4, 8)
    for call, got, expected in (
        ("x == y", instance == subject.new(4, 8, seed=1), plain == other),
        ("x == plain", instance == plain.clone(), torch.ones_like(plain, dtype=torch.bool)),
        ("plain != x", other != instance, plain != other),
    ):
        if not isinstance(got, torch.Tensor):
            raise MismatchError(call, "a tensor of bools", got)
        subject.same(call, got, expected)


@check("printing", "torch.equal and allclose are wrong, or fail beside a plain tensor", kinds=VALUED)
def equal_and_allclose_take_all_mixes(subject: Subject) -> None:
    """``torch.equal`` and ``torch.allclose`` compare values: of two instances, and of an instance and a plain tensor on
    either side."""
    plain = subject.reference(subject.plain(4, 8))
    same, other = subject.new(4, 8), subject.new(4, 8, seed=1)
    other_plain = subject.values(other)
    for function in (torch.equal, torch.allclose):
        for call, left, right, expected in (
            ("x, x.clone()", same, subject.new(4, 8), True),
            ("x, plain", same, plain, True),
            ("plain, x", plain, same, True),
            ("x, y", same, other, False),
            ("x, other_plain", same, other_plain, False),
            ("plain, y", plain, other, False),
        ):
            got = function(left, right)
            if got is not expected:
                raise MismatchError(f"torch.{function.__name__}({call})", expected, got)


@check("printing", "torch.equal answers from one inner tensor only", kinds=(Kind.TRANSPARENT,))
def equal_asks_every_inner_tensor(subject: Subject) -> None:
    """Two instances that differ in one inner tensor are not equal, whichever one it is."""
    instance = changed_in_its_last(subject, subject.new(4, 8))
    try:
        got = torch.equal(instance, subject.new(4, 8))
    except REFUSALS:
        return
    if got:
        raise MismatchError("torch.equal(x, y), which differ in their last inner tensors", False, got)


def _changed(subject: Subject) -> Any:
    """An instance that differs from ``new(4, 8)`` in its first row."""
    plain = subject.plain(4, 8)
    plain[0] = plain[0] * 3 + 1
    return subject.wrap(plain)


@check("printing", "assert_close fails on equal tensors, or its text says nothing", kinds=VALUED)
def assert_close_compares_values(subject: Subject) -> None:
    """``torch.testing.assert_close`` takes instances and plain tensors in all mixes, and its error counts the elements
    that differ: it is how users test with the class."""
    plain, instance, changed = subject.reference(subject.plain(4, 8)), subject.new(4, 8), _changed(subject)
    close: Any = torch.testing.assert_close
    for call, left, right in (
        ("x, x.clone()", instance, subject.new(4, 8)),
        ("x, plain", instance, plain),
        ("plain, x", plain, instance),
    ):
        close(left, right, msg=lambda text, call=call: f"assert_close({call}): {text}")
    expected = _differing(close, plain, subject.values(changed))
    for call, left, right in (("x, changed", instance, changed), ("plain, changed", plain, changed)):
        got = _differing(close, left, right)
        if got != expected:
            raise MismatchError(f"assert_close({call})", f"an AssertionError: {expected}", got)


def _differing(close: Callable[..., None], left: Any, right: Any) -> str:
    """What the error of ``assert_close`` says of the number of elements that differ."""
    try:
        close(left, right)
    except AssertionError as error:
        counts = [line for line in str(error).splitlines() if line.startswith("Mismatched elements")]
        return counts[0] if counts else str(error)
    return "no error"


@check("printing", "x == None raises")
def equality_with_no_tensor_is_as_torch_has_it(subject: Subject) -> None:
    """``x == None``, ``x != "text"`` and the like give what they give for a plain tensor: ``False`` and ``True``."""
    plain, instance = subject.plain(4, 8), subject.new(4, 8)
    for label, other in (("None", None), ("'text'", "text"), ("object", object), ("()", ())):
        for sign, expected, got in (
            ("==", plain == other, instance == other),
            ("!=", plain != other, instance != other),
        ):
            if got is not expected:
                raise MismatchError(f"x {sign} {label}", expected, got)


@check("printing", "instances can't be keys, or are found under another's")
def hash_is_identity(subject: Subject) -> None:
    """An instance is a key of its own in dictionaries and sets, whatever its values: optimizers keep their state under
    parameters."""
    instance, twin = subject.new(4, 8), subject.new(4, 8)
    state = {instance: "first", twin: "second"}
    before = hash(instance)
    instance.requires_grad_()
    if hash(instance) != before:
        raise MismatchError("hash(x), after x.requires_grad_()", "the same number", "another one")
    if len(state) != 2 or state[instance] != "first" or state[twin] != "second":
        raise MismatchError("{x: 'first', y: 'second'}[x]", "first", list(state.values()))
    if len({instance, instance.detach(), twin}) != 3:
        raise MismatchError("{x, x.detach(), y}", "3 elements", f"{len({instance, instance.detach(), twin})}")


def _raises_as(call: str, plain: Callable[[], Any], run: Callable[[], Any]) -> None:
    """Raises what the plain call raises, or an error that is one, too."""
    try:
        plain()
    except Exception as error:  # noqa: BLE001 - it is what is compared
        expected = error
    try:
        got = run()
    except type(expected):
        return
    raise MismatchError(call, type(expected), got)


@check("printing", "len(), iteration or `in` fail", kinds=VALUED)
def iteration_gives_the_rows(subject: Subject) -> None:
    """``len(x)``, ``for row in x``, ``a, b, c, d = x``, ``reversed(x)`` and ``value in x`` do what they do for a plain
    tensor; what has no length says so."""
    plain, instance = subject.reference(subject.plain(4, 8)), subject.new(4, 8)
    if len(instance) != 4:
        raise MismatchError("len(x) of shape (4, 8)", 4, len(instance))
    subject.same("[*x]", list(instance), list(plain))
    first, *_, last = instance
    subject.same("first, *_, last = x", [first, last], [plain[0], plain[3]])
    subject.same("[*reversed(x)]", list(reversed(instance)), list(reversed(plain)))
    value = float(plain[2, 3])
    for call, number in (("x[2, 3].item() in x", value), ("1e9 in x", 1e9)):
        if (number in instance) is not (number in plain):
            raise MismatchError(call, number in plain, number in instance)
    _raises_as("len(x.sum())", lambda: len(plain.sum()), lambda: len(instance.sum()))
    _raises_as("bool(x) of shape (4, 8)", lambda: bool(plain), lambda: bool(instance))


@check("printing", "len() or iteration fail for a tensor without values", kinds=(Kind.FAKE,))
def length_is_known_without_values(subject: Subject) -> None:
    """``len(x)`` and iteration need no values."""
    instance = subject.new(4, 8)
    shapes = [tuple(row.shape) for row in instance]
    if len(instance) != 4 or shapes != [(8,)] * 4:
        raise MismatchError("[row.shape for row in x]", [(8,)] * 4, shapes)
