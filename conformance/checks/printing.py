"""Printing and comparing."""

from __future__ import annotations

import torch

from ..check import check
from ..outcome import MismatchError
from ..subject import VALUED, Subject


@check("printing", "repr recurses, raises or prints all values")
def repr_is_short(subject: Subject) -> None:
    """``repr`` names the class and is no longer than a few lines, whatever the size of the tensor."""
    for shape in ((), (0,), (3,), (64, 64)):
        plain = subject.plain(*shape)
        if not subject.takes(plain):
            continue
        text = repr(subject.wrap(plain))
        if subject.cls.__name__ not in text or len(text) > 4000:
            raise MismatchError(
                f"repr(instance of shape {shape})", f"a short text that names {subject.cls.__name__}", text
            )


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
