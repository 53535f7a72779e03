"""The five steps in their order, the MRO, late registration, ``super_rule``, and the table that shows it all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Scaled, Sum

from lamina import DeclarationError, Fallback, Kind, MissingRuleError, WrapperTensor, op_table, strict
from lamina.subclasses.core.table import How

aten = torch.ops.aten


def fresh(*bases: Any, fallback: Fallback | None = None, **body: Any) -> Any:
    if fallback is not None:
        body["fallback"] = fallback
    annotations = {} if bases else {"elem": torch.Tensor}
    return type("Fresh", bases or (WrapperTensor,), {"__annotations__": annotations, **body})


def says(value: float, *keys: Any, on: Any) -> None:
    """Registers a rule that answers ``value``, whatever it is asked."""

    def answer(op: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.tensor(value)

    on.implements(*keys)(answer)


def asked(cls: Any, function: Any = torch.neg) -> float:
    return float(function(cls(torch.ones(1))))


# the order of the steps


@pytest.mark.parametrize("fallback", Fallback)
def test_an_exact_rule_goes_before_a_kind_and_that_before_the_fallback(fallback: Fallback) -> None:
    cls = fresh(fallback=fallback)
    says(1, Kind.POINTWISE, on=cls)
    assert asked(cls) == 1
    assert op_table(cls)[aten.neg.default].how is How.KIND
    says(2, aten.neg.default, on=cls)
    assert asked(cls) == 2
    assert op_table(cls)[aten.neg.default].how is How.EXACT
    assert asked(cls, torch.abs) == 1


def test_an_exact_rule_of_a_parent_goes_before_a_kind_rule_of_the_child() -> None:
    parent = fresh()
    child = fresh(parent)
    says(1, aten.neg.default, on=parent)
    says(2, Kind.POINTWISE, on=child)
    assert (asked(child), asked(child, torch.abs)) == (1, 2)


OF_KIND: dict[Kind, Any] = {
    Kind.LIST_MUTATING: lambda w: torch._foreach_add_([w], 1),
    Kind.OUT: lambda w: torch.add(w, 1, out=w),
    Kind.INPLACE: lambda w: w.add_(1),
    Kind.VIEW: lambda w: w.view(-1),
    Kind.FACTORY: torch.zeros_like,
    Kind.POINTWISE: lambda w: w + 1,
}


WRITING = (Kind.LIST_MUTATING, Kind.OUT, Kind.INPLACE)


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_rule_for_a_kind_answers_ops_of_that_kind(kind: Kind) -> None:
    cls, seen = fresh(fallback=Fallback.ERROR), []

    def watch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(op)
        return None if kind in WRITING else cls(torch.zeros(1))

    cls.implements(kind)(watch)
    OF_KIND[kind](cls(torch.ones(1)))
    assert len(seen) == 1
    with pytest.raises(MissingRuleError):
        torch.sort(cls(torch.ones(1)))


@pytest.mark.parametrize("kind", [Kind.OUT, Kind.INPLACE, Kind.LIST_MUTATING, Kind.VIEW])
def test_the_more_specific_kind_is_asked_first(kind: Kind) -> None:
    cls = fresh()
    order: list[Kind] = []
    for k in Kind:

        def watch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], k: Kind = k) -> Any:
            order.append(k)
            return None if k in WRITING else cls(torch.zeros(1))

        cls.implements(k)(watch)
    OF_KIND[kind](cls(torch.ones(1)))
    assert order == [kind]


@pytest.mark.parametrize("fallback", Fallback)
def test_a_composite_op_is_taken_apart_under_inference_mode(fallback: Fallback) -> None:
    """Outside of it torch does that; a rule for a piece has to answer in both."""
    cls, seen = fresh(fallback=fallback), []

    @cls.implements(aten.mm.default)
    def mm(op: Any, self: Any, mat2: Any) -> Any:
        seen.append(op)
        return torch.zeros(2, 2)

    cls.implements(aten.t.default)(lambda_named := _transposed(cls))
    assert lambda_named is not None
    with torch.inference_mode():
        torch.nn.functional.linear(cls(torch.ones(2, 2)), cls(torch.ones(2, 2)))
    assert seen == [aten.mm.default]
    assert op_table(cls)[aten.linear.default].how is How.DECOMPOSED


def _transposed(cls: Any) -> Any:
    def t(op: Any, self: Any) -> Any:
        return cls(op(self.elem))

    return t


def test_structural_rules_stand_before_error_and_plain() -> None:
    for cls in (fresh(fallback=Fallback.ERROR), Doubled, Scaled, Sum):
        assert op_table(cls)[aten.detach.default].how is How.STRUCTURAL
        assert op_table(cls)[aten.clone.default].how is How.STRUCTURAL
    assert op_table(Clear)[aten.detach.default].how is How.FALLBACK


def test_a_kind_rule_goes_before_a_structural_rule() -> None:
    """``detach`` is a view: who answers all views answers it."""
    cls = fresh()
    says(5, Kind.VIEW, on=cls)
    assert float(cls(torch.ones(1)).detach()) == 5


@pytest.mark.parametrize("fallback", Fallback)
def test_the_entry_says_how_it_was_found(fallback: Fallback) -> None:
    cls = fresh(fallback=fallback)
    entry = op_table(cls)[aten.sort.default]
    assert entry.how is (How.MISSING if fallback is Fallback.ERROR else How.FALLBACK)


# inheritance


def test_the_nearest_class_in_the_mro_answers() -> None:
    base = fresh()
    left, right = fresh(base), fresh(base)
    both = fresh(left, right)
    says(0, aten.neg.default, aten.abs.default, aten.exp.default, aten.log.default, on=base)
    says(1, aten.neg.default, aten.abs.default, on=left)
    says(2, aten.neg.default, aten.exp.default, on=right)
    assert [asked(both, f) for f in (torch.neg, torch.abs, torch.exp, torch.log)] == [1, 1, 2, 0]
    assert [asked(right, f) for f in (torch.neg, torch.abs)] == [2, 0]
    assert asked(fresh(right, left)) == 2


def test_late_registration_on_a_parent_reaches_used_children() -> None:
    base = fresh(fallback=Fallback.PLAIN)
    left, right = fresh(base), fresh(base)
    both = fresh(left, right)
    family = (base, left, right, both)
    assert [asked(cls) for cls in family] == [-1] * 4
    says(7, aten.neg.default, on=base)
    assert [asked(cls) for cls in family] == [7] * 4
    says(8, aten.neg.default, on=right)
    assert [asked(cls) for cls in family] == [7, 7, 8, 8]
    says(9, Kind.POINTWISE, on=left)
    assert [asked(cls, torch.abs) for cls in family] == [1, 9, 1, 9]


def test_fallback_is_inherited_and_may_be_changed() -> None:
    child = fresh(Clear)
    assert type(child(torch.ones(1)) + 1) is child
    stern = fresh(Clear, fallback=Fallback.ERROR)
    with pytest.raises(MissingRuleError):
        stern(torch.ones(1)) + 1


def test_super_rule_reaches_the_next_rule_by_position_and_by_keyword() -> None:
    base = fresh()

    @base.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return torch.tensor(float(other) * alpha)

    child = fresh(base)

    @child.implements(aten.add.Tensor)
    def own_add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        inherited = child.super_rule(op)
        return torch.stack(
            [
                inherited(self, other, alpha=alpha),
                inherited(self, other=other, alpha=alpha),
                inherited(self=self, other=other, alpha=alpha),
                inherited(alpha=alpha, other=other, self=self),
                inherited(self, other),
            ]
        )

    out = torch.add(child(torch.ones(1)), 3, alpha=2)
    assert out.tolist() == [6, 6, 6, 6, 3]


def test_super_rule_of_the_defining_class_is_right_for_grandchildren() -> None:
    base = fresh()
    says(1, aten.neg.default, on=base)
    middle = fresh(base)

    @middle.implements(aten.neg.default)
    def neg(op: Any, self: Any) -> Any:
        return middle.super_rule(op)(self) + 10

    last = fresh(middle)

    @last.implements(aten.neg.default)
    def last_neg(op: Any, self: Any) -> Any:
        return last.super_rule(op)(self) + 100

    assert asked(last) == 111


@pytest.mark.parametrize("fallback", [Fallback.UNWRAP, Fallback.PLAIN])
def test_super_rule_reaches_the_fallback(fallback: Fallback) -> None:
    cls = fresh(fallback=fallback)

    @cls.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return cls.super_rule(op)(self, other, alpha=2 * alpha)

    out = cls(torch.ones(1)) + 3
    assert type(out) is (cls if fallback is Fallback.UNWRAP else torch.Tensor)
    assert float(out.to_plain() if isinstance(out, WrapperTensor) else out) == 7


@pytest.mark.parametrize("fallback", [Fallback.UNWRAP, Fallback.PLAIN])
def test_super_rule_of_a_parent_reaches_the_fallback_of_the_child(fallback: Fallback) -> None:
    parent = fresh(fallback=fallback)

    @parent.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return parent.super_rule(op)(self, other, alpha=2 * alpha)

    child = fresh(parent)
    out = child(torch.ones(1)) + 3
    assert type(out) is (child if fallback is Fallback.UNWRAP else torch.Tensor)
    assert float(out.to_plain() if isinstance(out, WrapperTensor) else out) == 7


def test_super_rule_reaches_structural_and_decomposed_answers() -> None:
    cls = fresh()

    @cls.implements(aten.detach.default)
    def detach(op: Any, self: Any) -> Any:
        return cls.super_rule(op)(self)

    w = cls(torch.ones(1))
    assert type(w.detach()) is cls
    assert w.detach().elem.data_ptr() == w.elem.data_ptr()


def test_super_rule_without_an_inherited_answer_is_a_missing_rule() -> None:
    cls = fresh()

    @cls.implements(aten.neg.default)
    def neg(op: Any, self: Any) -> Any:
        return cls.super_rule(op)(self)

    with pytest.raises(MissingRuleError, match=r"aten\.neg\.default"):
        torch.neg(cls(torch.ones(1)))


def test_super_rule_of_a_mixed_in_family() -> None:
    base = fresh()
    says(1, aten.neg.default, on=base)
    left, right = fresh(base), fresh(base)
    says(2, aten.neg.default, on=right)

    @left.implements(aten.neg.default)
    def neg(op: Any, self: Any) -> Any:
        return left.super_rule(op)(self)

    both = fresh(left, right)
    assert asked(left) == 1
    assert float(torch.neg(both(torch.ones(1)))) == 2, "the next class in the MRO of the instance, as super() does"


# the missing rule


def test_the_error_of_a_missing_rule_says_what_was_called_what_is_near_and_what_to_write() -> None:
    cls = fresh()

    @cls.implements(aten._softmax.default)
    def softmax(op: Any, self: Any, dim: Any, half_to_float: Any) -> Any: ...

    with pytest.raises(MissingRuleError) as caught:
        torch.log_softmax(cls(torch.ones(2, 3)), 1)
    text = str(caught.value)
    assert "aten._log_softmax.default has no rule for Fresh" in text
    assert "Fresh(float32[2, 3])" in text
    assert "aten._softmax.default" in text
    assert f"test_resolver.py:{softmax.__code__.co_firstlineno}" in text
    assert "@Fresh.implements(torch.ops.aten._log_softmax.default)" in text
    assert "def log_softmax(op, self, dim, half_to_float)" in text
    assert caught.value.op is aten._log_softmax.default
    assert caught.value.classes == (cls,)
    assert isinstance(caught.value, NotImplementedError)


def test_the_error_of_a_missing_rule_describes_tensors_in_lists_and_keywords() -> None:
    cls = fresh()
    with pytest.raises(MissingRuleError, match=r"\[Fresh\(float32\[2\]\), Tensor\(int64\[3\]\)\]"):
        torch.cat([cls(torch.ones(2)), torch.arange(3)])
    with pytest.raises(MissingRuleError, match=r"alpha=3"):
        torch.add(cls(torch.ones(2)), 1, alpha=3)
    with pytest.raises(MissingRuleError, match=r"out=Tensor\(float32\[2\]\)"):
        torch.add(cls(torch.ones(2)), 1, out=torch.ones(2))


def test_the_line_to_write_is_one_that_registration_takes() -> None:
    """For each op: what the error suggests is compiled and registered."""
    operators = [
        *(aten.add.Tensor, aten.mm.default, aten.sum.dim_IntList, aten.slice.Tensor, aten._foreach_add_.List),
        *(aten.native_layer_norm.default, aten.add_.Tensor, aten.add.out, aten.convolution.default),
        *(getattr(aten.random_, "from"), aten.normal_.default, aten.topk.default, aten._to_copy.default),
    ]
    for op in operators:
        cls = fresh()
        from lamina.subclasses.core.report import missing_rule

        text = str(missing_rule(op_table(cls)[op], (cls,), (), {}))
        (line,) = (line.strip() for line in text.splitlines() if line.strip().startswith("def "))
        scope: dict[str, Any] = {}
        exec(line, scope)  # noqa: S102 - the text under test
        function = next(v for k, v in scope.items() if k != "__builtins__")
        cls.implements(op)(function)


# the table


def test_the_table_prints_op_kind_how_name_place_and_hits() -> None:
    cls = fresh(fallback=Fallback.PLAIN)

    @cls.implements(aten.add_.Tensor)
    def add_(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        self.elem.add_(other)

    w = cls(torch.ones(2))
    w.add_(1)
    w.add_(1)
    w.exp()
    lines = str(op_table(cls)).splitlines()
    assert lines[0] == f"op table of Fresh: {len(op_table(cls))} operators resolved"
    assert len(lines) == 1 + len(op_table(cls))
    (row,) = (line for line in lines if "aten.add_.Tensor" in line)
    for part in ("in-place", "exact rule", "add_", f"test_resolver.py:{add_.__code__.co_firstlineno}", "hits=2"):
        assert part in row
    (row,) = (line for line in lines if "aten.exp.default" in line)
    for part in ("pointwise", "fallback", "PLAIN", "hits=1"):
        assert part in row
    assert repr(op_table(cls)) == str(op_table(cls))


def test_the_table_is_a_collection() -> None:
    cls = fresh(fallback=Fallback.PLAIN)
    table = op_table(cls)
    before = len(table)
    assert aten.exp.default not in table
    assert table[aten.exp.default].op is aten.exp.default
    assert aten.exp.default in table
    assert len(table) == len(list(table)) == before + 1
    assert aten.exp.default in [entry.op for entry in table]
    assert table[aten.exp.default].hits == 0
    cls(torch.ones(1)).exp()
    assert table[aten.exp.default].hits == 1


def test_the_table_lists_rules_that_never_ran_inherited_ones_too() -> None:
    parent = fresh()
    says(1, aten.neg.default, on=parent)
    child = fresh(parent)
    says(1, aten.abs.default, on=child)
    assert {entry.op for entry in op_table(child)} >= {aten.neg.default, aten.abs.default}


@pytest.mark.parametrize("wrong", [torch.Tensor, WrapperTensor, int, 3, None, "Clear", torch.ones(1)])
def test_op_table_of_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match="Pass such a class"):
        op_table(wrong)


def test_an_instance_is_refused_with_a_text_that_does_not_dispatch() -> None:
    with pytest.raises(DeclarationError):
        op_table(fresh()(torch.ones(1)))


@pytest.mark.parametrize("wrong", [aten.add, "aten.add.Tensor", torch.add])
def test_the_table_is_indexed_by_overload(wrong: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError), match="overload"):
        op_table(fresh())[wrong]


def test_hits_survive_a_late_registration() -> None:
    """A count that falls back to 0 would hide what strict() is asked to find."""
    cls = fresh(fallback=Fallback.PLAIN)
    cls(torch.ones(1)).exp()
    says(1, aten.neg.default, on=cls)
    assert op_table(cls)[aten.exp.default].hits == 1


def test_fallback_hits_are_counted_per_class_and_op() -> None:
    one, two = fresh(fallback=Fallback.PLAIN), fresh(fallback=Fallback.PLAIN)
    for _ in range(3):
        one(torch.ones(1)).exp()
    two(torch.ones(1)).exp()
    assert (op_table(one)[aten.exp.default].hits, op_table(two)[aten.exp.default].hits) == (3, 1)


# first use from several threads


def test_threads_that_use_a_class_for_the_first_time_agree() -> None:
    for _ in range(20):
        cls = fresh(fallback=Fallback.PLAIN)
        says(1, aten.neg.default, on=cls)
        start, answers = threading.Barrier(4), []

        def work(cls: Any = cls, start: threading.Barrier = start, answers: list[Any] = answers) -> None:
            start.wait()
            w = cls(torch.ones(2, 2))
            answers.append([float(-w), float((w + 1).sum()), type(w.detach()), float((w @ w).sum())])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [[1, 8, cls, 8]] * 4


def test_strict_holds_for_its_own_thread() -> None:
    answers = []
    with strict():
        thread = threading.Thread(target=lambda: answers.append(Doubled(torch.ones(1)).exp()))
        thread.start()
        thread.join()
    assert len(answers) == 1


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_a_rule_for_views_sees_the_same_ops_in_every_mode(mode: Callable[[], Any]) -> None:
    """``to`` is composite, and by its schema a view: where it arrives whole, its pieces are what a rule answers."""

    class Viewed(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.UNWRAP

    seen: list[str] = []

    @Viewed.implements(Kind.VIEW)
    def view(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(op.name())
        return Viewed.super_rule(op)(*args, **kwargs)

    plain = torch.randn(3, 4)
    calls: list[Callable[[Any], Any]] = [
        lambda t: t.to(torch.float64),
        lambda t: t.to("meta"),
        lambda t: t.float(),
        lambda t: t.unflatten(1, (2, 2)),
        lambda t: t.reshape(4, 3),
        lambda t: t.narrow(0, 1, 2),
    ]
    with mode():
        w = Viewed(plain.clone())
        results, expected = [call(w) for call in calls], [call(plain) for call in calls]
    for got, wanted in zip(results, expected, strict=True):
        assert (type(got), got.shape, got.dtype, got.device) == (Viewed, wanted.shape, wanted.dtype, wanted.device)
        assert got.elem.dtype is wanted.dtype
        if not wanted.is_meta:
            assert torch.equal(got.elem, wanted)
    assert "aten::to.dtype" not in seen
    assert {"aten::view", "aten::slice.Tensor"} <= set(seen)
