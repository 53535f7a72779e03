"""Calls as data: their texts, what becomes of errors, and what counts as stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import Clear, Doubled
from torch.nn import functional as F

from lamina import ScaledInt8Tensor
from lamina.conformance import Kind, MismatchError, Subject
from lamina.conformance.calls import X, Y, assigned, compare, function, item, method, refused_by_step
from lamina.conformance.schema_trial import obeys_schema, operands
from lamina.subclasses.scaled_int8 import PerGroup

aten = torch.ops.aten


def subject_of(cls: Any, kind: Kind, make: Any = None) -> Subject:
    return Subject(cls, make or cls.from_plain, kind, cls.to_plain)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (method("add_", Y, alpha=2), "x.add_(y, alpha=2)"),
        (method("__iadd__", Y), "x += y"),
        (item(slice(1, None), ...), "x[1:, ...]"),
        (item(slice(None, None, 3)), "x[::3]"),
        (item(None, [0, 2]), "x[None, [0, 2]]"),
        (assigned((slice(None), 1), 3.0), "x[:, 1] = 3.0"),
        (function(torch.cat, [X, Y], dim=1), "torch.cat([x, y], dim=1)"),
        (function(F.linear, X, Y), "F.linear(x, y)"),
        (function(aten.neg.default, X), "aten.neg.default(x)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_reads_as_one_writes_it(call: Any, text: str) -> None:
    assert call.text == text


def test_a_call_takes_operands_in_lists_and_by_keyword() -> None:
    ones, zeros = torch.ones(2), torch.zeros(2)
    assert function(torch.cat, [X, Y])({"x": ones, "y": zeros}).tolist() == [1, 1, 0, 0]
    assert method("add", other=Y, alpha=3)({"x": ones, "y": ones}).tolist() == [4, 4]


def test_an_error_of_the_class_names_the_call_and_stays_the_cause() -> None:
    with pytest.raises(MismatchError, match=r"x\.view\(3\)") as caught:
        method("view", 3).on({"x": torch.ones(2)}, "a view")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_torch_refuses_is_an_error_of_the_check_unless_it_was_expected() -> None:
    subject = subject_of(Clear, Kind.TRANSPARENT)
    x, plain = subject.new(4, 8), subject.plain(4, 8)
    with pytest.raises(RuntimeError, match="invalid for input"):
        compare(subject, [method("view", 5)], x, plain)
    compare(subject, [method("view", 5)], x, plain, impossible=True)


def test_a_refusal_has_to_name_the_step() -> None:
    grouped = ScaledInt8Tensor.quantize(torch.randn(4, 8), PerGroup(4))
    with pytest.raises(MismatchError) as by_step:
        item(slice(None), slice(1, 3)).on({"x": grouped})
    assert refused_by_step(by_step.value)
    with pytest.raises(MismatchError) as by_rank:
        item(0, 0, 0).on({"x": grouped})
    assert not refused_by_step(by_rank.value)


def test_stored_allows_a_step_of_the_representation_and_no_more() -> None:
    subject = subject_of(ScaledInt8Tensor, Kind.REPRESENTATION)
    values = subject.plain(4, 8)
    step = subject.step(values)
    assert 0 < step < 0.1
    subject.stored("x", subject.wrap(values), values)
    with pytest.raises(MismatchError, match="within"):
        subject.stored("x", subject.wrap(values), values + 2 * step)
    subject.stored("x", subject.wrap(values), values + 1.5 * step, writes=2)
    with pytest.raises(MismatchError):  # a plain result has no step
        subject.stored("plain", values + step / 9, values)


@pytest.mark.parametrize("cls", [Clear, Doubled])
def test_a_write_that_the_schema_does_not_name_is_found(cls: Any) -> None:
    subject = subject_of(cls, Kind.TRANSPARENT if cls is Clear else Kind.REPRESENTATION)
    call = function(aten.add_.Tensor, X, Y)
    instances, plains = operands(subject, "x", "y")
    obeys_schema(subject, call, instances, plains)
    instances, plains = operands(subject, "x", "y")
    plains["y"].add_(1)
    with pytest.raises(MismatchError, match=r"y is only read|x is written"):
        obeys_schema(subject, call, instances, plains)
