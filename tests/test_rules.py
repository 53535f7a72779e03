"""What ``implements`` takes, and what it refuses with a text that says what to write instead."""

from __future__ import annotations

# ruff: noqa: ARG002, ARG005 - signatures are those of schemas and hooks
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from lamina import Fallback, Kind, RegistrationError, RuleConflictError, WrapperTensor, op_table

aten = torch.ops.aten


def fresh(fallback: Fallback = Fallback.ERROR) -> Any:
    return type("Fresh", (WrapperTensor,), {"__annotations__": {"elem": torch.Tensor}, "fallback": fallback})


def named(op: Any, *args: Any, **kwargs: Any) -> Any:
    raise AssertionError("never called")


def take_mm(op: Any, self: Any, mat2: Any) -> Any:
    return torch.zeros(1)


@pytest.mark.parametrize("packet", [aten.mm, aten.add, aten.sum])
def test_a_packet_is_refused_and_its_overloads_are_listed(packet: Any) -> None:
    cls = fresh()
    with pytest.raises(RegistrationError) as caught:
        cls.implements(packet)(named)
    for overload in packet.overloads():
        assert f"{packet}.{overload}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("aten.mm", "torch.ops.aten.mm.default"),
        ("aten::mm", "torch.ops.aten.mm.default"),
        ("mm", "torch.ops.aten.mm.default"),
        ("aten.add.Tensor", "torch.ops.aten.add.Tensor"),
        ("aten::add.Tensor", "torch.ops.aten.add.Tensor"),
    ],
)
def test_a_string_is_refused_and_the_overload_is_named(text: str, advice: str) -> None:
    with pytest.raises(RegistrationError, match=rf"is a string.*{advice}"):
        fresh().implements(text)(named)


@pytest.mark.parametrize("function", [F.linear, torch.mm, torch.Tensor.add, operator.add, len, 3, None, object()])
def test_something_that_is_no_overload_is_refused(function: Any) -> None:
    with pytest.raises(RegistrationError, match="implements_function"):
        fresh().implements(function)(named)


COMPOSITE = {
    "linear.default": ("addmm.default", "mm.default", "t.default"),
    "matmul.default": ("mm.default", "bmm.default"),
    "reshape.default": ("view.default",),
    "flatten.using_ints": ("view.default",),
    "contiguous.default": ("clone.default",),
    "to.dtype": ("_to_copy.default",),
    "chunk.default": ("split.Tensor",),
    "einsum.default": ("bmm.default",),
    "layer_norm.default": ("native_layer_norm.default",),
    "dropout.default": ("native_dropout.default",),
    "batch_norm.default": ("native_batch_norm.default",),
    "conv2d.default": ("convolution.default",),
    "narrow.default": ("slice.Tensor",),
    "type_as.default": ("_to_copy.default",),
    "cross_entropy_loss.default": (),
    "scaled_dot_product_attention.default": (),
}


@pytest.mark.parametrize("name", COMPOSITE)
def test_a_composite_overload_is_refused_and_its_pieces_are_named(name: str) -> None:
    packet, overload = name.split(".")
    op = getattr(getattr(aten, packet), overload)
    with pytest.raises(RegistrationError, match=r"composite.*inference_mode") as caught:
        fresh().implements(op)(named)
    for piece in COMPOSITE[name]:
        assert piece in str(caught.value)
        head, tail = piece.split(".")
        assert getattr(getattr(aten, head), tail)


@pytest.mark.parametrize("name", ["_", "<lambda>"])
def test_a_rule_without_a_name_is_refused(name: str) -> None:
    def _(op: Any, self: Any, mat2: Any) -> Any:
        return None

    rule: Any = {"_": _, "<lambda>": lambda op, self, mat2: None}[name]
    with pytest.raises(RegistrationError, match=r"test_rules\.py:\d+ has no name.*def name\(op"):
        fresh().implements(aten.mm.default)(rule)


@pytest.mark.parametrize("rule", [3, None, "mm"])
def test_a_rule_that_is_no_function_is_refused(rule: Any) -> None:
    with pytest.raises(RegistrationError, match="a rule is a function"):
        fresh().implements(aten.mm.default)(rule)


def test_no_key_is_refused() -> None:
    with pytest.raises(RegistrationError, match="at least one operator"):
        fresh().implements()(named)


def wrong_signatures() -> dict[str, tuple[Any, Callable[..., Any], str]]:  # noqa: C901 - a list
    def no_op(self: Any, mat2: Any) -> Any: ...
    def too_few(op: Any, self: Any) -> Any: ...
    def too_many(op: Any, self: Any, mat2: Any, more: Any) -> Any: ...
    def too_many_with_default(op: Any, self: Any, mat2: Any, more: Any = None) -> Any: ...
    def misspelt(op: Any, self: Any, mat: Any) -> Any: ...
    def swapped(op: Any, mat2: Any, self: Any) -> Any: ...
    def nothing() -> Any: ...
    def only_keywords(*, op: Any, self: Any, mat2: Any) -> Any: ...
    def keyword_only(op: Any, self: Any, *, mat2: Any) -> Any: ...
    def positional_only(op: Any, self: Any, mat2: Any, /) -> Any: ...
    def own_default(op: Any, self: Any, mat2: Any = None) -> Any: ...
    def default_differs(op: Any, self: Any, other: Any, *, alpha: Any = 2) -> Any: ...
    def stars_then_name(op: Any, *args: Any, mat: Any) -> Any: ...
    def name_then_stars(op: Any, tensor: Any, **kwargs: Any) -> Any: ...
    def stars_only_in_part(op: Any, self: Any, mat2: Any, extra: Any, **kwargs: Any) -> Any: ...
    def keywords_but_no_positions(op: Any, self: Any, **kwargs: Any) -> Any: ...
    def positions_but_no_keywords(op: Any, self: Any, *args: Any) -> Any: ...
    def misses_dim(op: Any, self: Any, *, dtype: Any = None) -> Any: ...

    return {
        "no op": (aten.mm.default, no_op, "mat2"),
        "too few": (aten.mm.default, too_few, "takes 1 arguments, the schema has 2: misses mat2"),
        "too many": (aten.mm.default, too_many, "takes 3 arguments, the schema has 2"),
        "too many, default": (aten.mm.default, too_many_with_default, "takes 3 arguments, the schema has 2"),
        "misspelt": (aten.mm.default, misspelt, "'mat' stands where the schema has 'mat2'"),
        "swapped": (aten.mm.default, swapped, "'mat2'|'self'"),
        "nothing": (aten.mm.default, nothing, "no first argument"),
        "only keywords": (aten.mm.default, only_keywords, "no first argument"),
        "keyword-only": (aten.mm.default, keyword_only, "'mat2' is keyword-only"),
        "positional-only": (aten.mm.default, positional_only, "can't be passed by keyword"),
        "own default": (aten.mm.default, own_default, "'mat2' has the default None"),
        "default differs": (aten.add.Tensor, default_differs, "'alpha' has the default 2, the schema says 1"),
        "stars then name": (aten.mm.default, stars_then_name, "mat"),
        "name then stars": (aten.native_layer_norm.default, name_then_stars, "'tensor' stands where .* 'input'"),
        "extra beside stars": (aten.mm.default, stars_only_in_part, "extra"),
        "no place for mat2": (aten.mm.default, keywords_but_no_positions, "mat2"),
        "no place for alpha": (aten.add.Tensor, positions_but_no_keywords, "alpha"),
        "misses one of many": (aten.sum.dim_IntList, misses_dim, "dim"),
    }


@pytest.mark.parametrize("case", wrong_signatures())
def test_a_signature_that_is_not_the_schemas_is_refused(case: str) -> None:
    op, rule, why = wrong_signatures()[case]
    cls = fresh()
    with pytest.raises(RegistrationError, match=why) as caught:
        cls.implements(op)(rule)
    text = str(caught.value)
    assert "test_rules.py:" in text
    assert op not in cls._rules
    if "no first argument" in text:
        return
    assert str(op) in text
    assert f"write:  def {rule.__name__}(op, self" in text or "write:  def name_then_stars(op, input" in text


def right_signatures() -> dict[str, tuple[Any, Callable[..., Any]]]:
    def exact(op: Any, self: Any, mat2: Any) -> Any: ...
    def renamed_self(op: Any, weight: Any, mat2: Any) -> Any: ...
    def named_func(func: Any, self: Any, mat2: Any) -> Any: ...
    def stars(op: Any, *args: Any, **kwargs: Any) -> Any: ...
    def some_then_stars(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any: ...
    def with_default(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any: ...
    def without_default(op: Any, self: Any, other: Any, *, alpha: Any) -> Any: ...
    def renamed_from(op: Any, self: Any, from_: Any, to: Any, *, generator: Any = None) -> Any: ...
    def positional_op(op: Any, /, self: Any, mat2: Any) -> Any: ...

    return {
        "exact": (aten.mm.default, exact),
        "renamed self": (aten.mm.default, renamed_self),
        "func": (aten.mm.default, named_func),
        "stars": (aten.mm.default, stars),
        "some then stars": (aten.add.Tensor, some_then_stars),
        "default written": (aten.add.Tensor, with_default),
        "default left out": (aten.add.Tensor, without_default),
        "from_": (getattr(aten.random_, "from"), renamed_from),
        "positional op": (aten.mm.default, positional_op),
    }


@pytest.mark.parametrize("case", right_signatures())
def test_a_signature_that_fits_is_accepted(case: str) -> None:
    op, rule = right_signatures()[case]
    cls = fresh()
    assert cls.implements(op)(rule) is rule
    assert op in cls._rules


def test_a_bound_method_may_be_a_rule_and_a_nameless_object_not() -> None:
    class Answer:
        def __call__(self, op: Any, a: Any, mat2: Any) -> Any: ...

        def method(self, op: Any, a: Any, mat2: Any) -> Any:
            return torch.full((1,), 8.0)

    cls = fresh()
    cls.implements(aten.mm.default)(Answer().method)
    w = cls(torch.ones(2, 2))
    assert (w @ w).item() == 8
    assert "Answer.method" in str(op_table(cls))
    for rule in (Answer(), functools.partial(Answer().method)):
        with pytest.raises(RegistrationError, match="has no name"):
            cls.implements(aten.mm.default, override=True)(rule)


def test_the_first_parameter_is_the_overload_and_the_rest_bind_by_name() -> None:
    cls, seen = fresh(), []

    @cls.implements(aten.add.Tensor, aten.sub.Tensor)
    def add_or_sub(op: Any, self: Any, other: Any, *, alpha: Any) -> Any:
        seen.append((op, type(self), other, alpha))
        return torch.zeros(1)

    w = cls(torch.ones(2))
    torch.add(w, 3)
    torch.sub(w, 4, alpha=2)
    torch.add(input=w, other=w, alpha=5)
    aten.add.Tensor(self=w, other=6)
    assert [(op, cls_, alpha) for op, cls_, _, alpha in seen] == [
        (aten.add.Tensor, cls, 1),
        (aten.sub.Tensor, cls, 2),
        (aten.add.Tensor, cls, 5),
        (aten.add.Tensor, cls, 1),
    ]
    assert [float(other) for _, _, other, _ in seen if not isinstance(other, cls)] == [3, 4, 6]


def test_defaults_apply_by_position_and_by_keyword() -> None:
    cls, seen = fresh(), []

    @cls.implements(aten.addmm.default)
    def addmm(op: Any, bias: Any, mat1: Any, mat2: Any, *, beta: Any, alpha: Any) -> Any:
        seen.append((beta, alpha))
        return torch.zeros(1)

    @cls.implements(aten.slice.Tensor)
    def cut(op: Any, x: Any, dim: Any, start: Any, end: Any, step: Any) -> Any:
        seen.append((dim, start, end, step))
        return torch.zeros(1)

    w = cls(torch.ones(2, 2))
    torch.addmm(w, w, w)
    torch.addmm(w, w, w, alpha=3)
    torch.addmm(input=w, mat1=w, mat2=w, beta=2)
    aten.slice.Tensor(w)
    aten.slice.Tensor(w, 1, step=2)
    assert seen == [(1, 1), (1, 3), (2, 1), (0, None, None, 1), (1, None, None, 2)]


def test_a_python_keyword_of_the_schema_may_be_renamed() -> None:
    cls, seen = fresh(), []

    @cls.implements(getattr(aten.random_, "from"))
    def random_(op: Any, target: Any, start: Any, to: Any, *, generator: Any = None) -> Any:
        seen.append((start, to))

    w = cls(torch.zeros(2))
    w.random_(2, 5)
    getattr(aten.random_, "from")(w, **{"from": 3, "to": 6})
    assert seen == [(2, 5), (3, 6)]


def test_nothing_is_registered_if_one_of_several_keys_is_wrong() -> None:
    cls = fresh()
    with pytest.raises(RegistrationError):
        cls.implements(aten.mm.default, aten.add.Tensor)(take_mm)
    with pytest.raises(RegistrationError):
        cls.implements(aten.mm.default, aten.bmm)(take_mm)
    with pytest.raises(RegistrationError):
        cls.implements(aten.mm.default, "aten.bmm")(take_mm)
    assert dict(cls._rules) == {}


def test_a_conflict_among_several_keys_registers_nothing() -> None:
    cls = fresh()
    cls.implements(aten.bmm.default)(take_mm)

    def other(op: Any, self: Any, mat2: Any) -> Any: ...

    with pytest.raises(RuleConflictError):
        cls.implements(aten.mm.default, aten.bmm.default)(other)
    assert list(cls._rules) == [aten.bmm.default]


@pytest.mark.parametrize("key", [aten.mm.default, Kind.VIEW])
def test_replacing_a_rule_names_both_places(key: Any) -> None:
    cls = fresh()

    def first(op: Any, *args: Any, **kwargs: Any) -> Any: ...
    def second(op: Any, *args: Any, **kwargs: Any) -> Any: ...

    cls.implements(key)(first)
    with pytest.raises(RuleConflictError, match="override=True") as caught:
        cls.implements(key)(second)
    for rule in (first, second):
        assert f"test_rules.py:{rule.__code__.co_firstlineno}" in str(caught.value)
    assert cls._rules[key].function is first
    cls.implements(key, override=True)(second)
    assert cls._rules[key].function is second


def test_override_takes_effect_after_the_entry_was_used() -> None:
    cls = fresh()

    def one(op: Any, self: Any) -> Any:
        return torch.tensor(1)

    def two(op: Any, self: Any) -> Any:
        return torch.tensor(2)

    cls.implements(aten.neg.default)(one)
    w = cls(torch.ones(1))
    assert (-w).item() == 1
    cls.implements(aten.neg.default, override=True)(two)
    assert (-w).item() == 2


def test_a_key_given_twice_in_one_call_is_one_rule() -> None:
    cls = fresh()
    cls.implements(aten.mm.default, aten.mm.default)(take_mm)
    assert list(cls._rules) == [aten.mm.default]


def test_a_child_may_replace_a_parents_rule_without_override() -> None:
    parent = fresh()
    parent.implements(aten.mm.default)(take_mm)
    child = type("Child", (parent,), {})

    def own(op: Any, self: Any, mat2: Any) -> Any:
        return torch.ones(1)

    child.implements(aten.mm.default)(own)
    assert (child(torch.ones(2, 2)) @ torch.ones(2, 2)).item() == 1
    assert (parent(torch.ones(2, 2)) @ torch.ones(2, 2)).item() == 0


@pytest.mark.parametrize("kind", list(Kind))
def test_a_rule_for_a_kind_takes_op_args_kwargs(kind: Kind) -> None:
    cls = fresh()

    def too_few(op: Any, args: Any) -> Any: ...
    def required_keyword(op: Any, args: Any, kwargs: Any, *, more: Any) -> Any: ...
    def fits(op: Any, args: Any, kwargs: Any) -> Any: ...

    for rule in (too_few, required_keyword):
        with pytest.raises(RegistrationError, match=r"takes \(op, args, kwargs\).*test_rules\.py"):
            cls.implements(kind)(rule)
    cls.implements(kind)(fits)
    assert kind in cls._rules


def test_registering_on_the_base_class_is_refused() -> None:
    """It would change every type of every library."""
    with pytest.raises(RegistrationError, match="WrapperTensor"):
        WrapperTensor.implements(aten.mm.default)(take_mm)
    assert aten.mm.default not in WrapperTensor._rules


def test_operators_of_a_library_can_have_rules() -> None:
    with torch.library._scoped_library("lamina_test_rules", "DEF") as library:
        library.define("twice(Tensor x, *, int by=2) -> Tensor")
        library.impl("twice", lambda x, *, by=2: x * by, "CPU")
        cls = fresh()

        @cls.implements(torch.ops.lamina_test_rules.twice.default)
        def twice(op: Any, x: Any, *, by: Any = 2) -> Any:
            return cls(op(x.elem, by=by))

        out = torch.ops.lamina_test_rules.twice(cls(torch.ones(2)), by=5)
        assert torch.equal(out.elem, torch.full((2,), 5.0))


def test_implements_without_parentheses_is_refused() -> None:
    class Bare(WrapperTensor):
        elem: torch.Tensor

    with pytest.raises(RegistrationError, match="no operator overload"):

        @Bare.implements
        def answer(op: Any, self: Any) -> Any:
            return self
