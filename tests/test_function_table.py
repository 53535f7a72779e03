"""The function-level table: off until it is filled, then before autograd, nearest class first."""

from __future__ import annotations

# ruff: noqa: ARG004, ARG005, PLR0124 - signatures are those of schemas and hooks; comparing with itself is the subject
from typing import Any

import pytest
import torch
from subjects import Clear

from lamina import Fallback, RegistrationError, RuleConflictError, WrapperTensor

F = torch.nn.functional
DISABLED = torch._C._disabled_torch_function_impl


def fresh(*bases: Any) -> Any:
    if bases:
        return type("Fresh", bases, {})
    return type("Fresh", (WrapperTensor,), {"__annotations__": {"elem": torch.Tensor}, "fallback": Fallback.UNWRAP})


def is_off(cls: Any) -> bool:
    return cls.__torch_function__ is DISABLED


def test_it_is_off_while_the_table_is_empty_and_flips_children_too() -> None:
    parent = fresh()
    child = fresh(parent)
    grandchild = fresh(child)
    sibling = fresh(parent)
    assert all(map(is_off, (parent, child, grandchild, sibling)))

    @child.implements_function(F.relu)
    def relu(func: Any, input: Any, inplace: bool = False) -> Any:  # noqa: A002 - torch's own name
        return "child"

    assert is_off(parent)
    assert is_off(sibling)
    assert not is_off(child)
    assert not is_off(grandchild)
    assert F.relu(grandchild(torch.ones(1))) == "child"
    assert type(F.relu(parent(torch.ones(1)))) is parent
    late = fresh(child)
    assert F.relu(late(torch.ones(1))) == "child"


@pytest.mark.parametrize("call", ["positional", "keyword", "mixed"])
def test_a_rule_gets_the_call_as_it_was_written(call: str) -> None:
    cls, seen = fresh(), []

    @cls.implements_function(F.linear)
    def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
        seen.append((func, bias))
        return func(input, weight.elem, bias)

    w, x, b = cls(torch.ones(3, 2)), torch.ones(1, 2), torch.ones(3)
    out = {
        "positional": lambda: F.linear(x, w, b),
        "keyword": lambda: F.linear(input=x, weight=w, bias=b),
        "mixed": lambda: F.linear(x, w, bias=b),
    }[call]()
    assert seen == [(F.linear, b)]
    assert out.tolist() == [[3, 3, 3]]
    assert F.linear(x, w).tolist() == [[2, 2, 2]]


def test_a_rule_is_above_autograd_and_may_bring_its_own_gradient() -> None:
    cls = fresh()

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.detach() * 3

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * 100

    @cls.implements_function(torch.sin)
    def sin(func: Any, input: Any) -> Any:  # noqa: A002
        return Triple.apply(input)

    w = cls(torch.ones(2)).requires_grad_()
    out = torch.sin(w)
    out.sum().backward()
    assert out.elem.tolist() == [3, 3]
    assert w.grad.elem.tolist() == [100, 100]


def test_methods_and_operators_can_be_keys() -> None:
    cls = fresh()

    @cls.implements_function(torch.Tensor.add, torch.Tensor.__add__, torch.add)
    def add(func: Any, *args: Any, **kwargs: Any) -> Any:
        return "added"

    w = cls(torch.ones(1))
    assert w.add(1) == torch.add(w, 1) == w + 1 == "added"


def test_other_functions_take_the_ordinary_path() -> None:
    cls = fresh()

    @cls.implements_function(F.relu)
    def relu(func: Any, input: Any, inplace: bool = False) -> Any:  # noqa: A002
        return "rule"

    w = cls(torch.ones(2, 2)).requires_grad_()
    out = F.linear(w, w) + 1
    assert type(out) is cls
    out.sum().backward()
    assert type(w.grad) is cls
    assert w.shape == (2, 2)
    assert type(w.t()) is cls
    assert type(w.detach()) is cls
    assert repr(w).startswith("Fresh(elem=")
    assert torch.nn.Parameter(w.detach()).requires_grad
    assert w[0].elem.tolist() == [1, 1]
    w.grad = None
    assert torch.equal(w, w)


def test_the_rule_can_call_the_function_itself() -> None:
    cls = fresh()
    calls: list[int] = []

    @cls.implements_function(F.relu)
    def relu(func: Any, input: Any, inplace: bool = False) -> Any:  # noqa: A002
        calls.append(1)
        return func(input.elem)

    assert F.relu(cls(torch.tensor([-1.0, 1.0]))).tolist() == [0, 1]
    assert calls == [1]


def test_the_nearest_class_in_the_mro_answers() -> None:
    base = fresh()
    left, right = fresh(base), fresh(base)
    both = fresh(left, right)
    for cls, answer in ((base, "base"), (right, "right")):

        @cls.implements_function(F.relu)
        def relu(func: Any, *args: Any, answer: str = answer, **kwargs: Any) -> Any:
            return answer

    assert F.relu(both(torch.ones(1))) == "right"
    assert F.relu(left(torch.ones(1))) == "base"


def test_a_rule_may_decline_for_another_class() -> None:
    one, two = fresh(), fresh()

    @one.implements_function(torch.add)
    def decline(func: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    @two.implements_function(torch.add)
    def answer(func: Any, *args: Any, **kwargs: Any) -> Any:
        return "two"

    assert torch.add(one(torch.ones(1)), two(torch.ones(1))) == "two"
    assert torch.add(two(torch.ones(1)), one(torch.ones(1))) == "two"


def test_where_all_decline_the_ordinary_path_answers_and_never_a_plain_false() -> None:
    cls, asked = fresh(), []

    @cls.implements_function(torch.Tensor.eq, torch.Tensor.__eq__, torch.eq)
    def decline(func: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(func)
        return NotImplemented

    w = cls(torch.ones(1))
    for call in (lambda: w == w, lambda: w == 1, lambda: torch.eq(w, w), lambda: w.eq(w)):
        out = call()
        assert type(out) is cls
        assert out.elem.tolist() == [True]
    assert len(asked) == 4


def test_a_type_error_in_a_rule_is_never_a_plain_false() -> None:
    cls = fresh()

    @cls.implements_function(torch.Tensor.eq, torch.Tensor.__eq__)
    def broken(func: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        cls(torch.ones(1)) == 1  # noqa: B015


def test_precedence_holds_for_functions_too() -> None:
    low, high = fresh(), fresh()
    high.precedence = 5
    for cls, answer in ((low, "low"), (high, "high")):

        @cls.implements_function(torch.add)
        def add(func: Any, *args: Any, answer: str = answer, **kwargs: Any) -> Any:
            return answer

    assert torch.add(low(torch.ones(1)), high(torch.ones(1))) == "high"
    assert torch.add(high(torch.ones(1)), low(torch.ones(1))) == "high"


@pytest.mark.parametrize("key", [torch.ops.aten.mm.default, torch.ops.aten.mm, "linear", 3, None])
def test_a_key_that_is_no_public_function_is_refused(key: Any) -> None:
    cls = fresh()

    def rule(func: Any, *args: Any, **kwargs: Any) -> Any: ...

    with pytest.raises(RegistrationError, match=r"public functions such as torch\.nn\.functional\.linear"):
        cls.implements_function(key)(rule)
    with pytest.raises(RegistrationError):
        cls.implements_function(F.relu, key)(rule)
    assert is_off(cls), "nothing registered if one of several keys is wrong"


def test_a_function_that_torch_never_asks_about_is_refused() -> None:
    """It would be accepted and never fire."""
    cls = fresh()

    def rule(func: Any, *args: Any, **kwargs: Any) -> Any: ...

    for key in (len, lambda x: x, torch.ones, Clear, torch.nn.Linear):
        with pytest.raises(RegistrationError):
            cls.implements_function(key)(rule)


@pytest.mark.parametrize("rule", [3, None, "relu"])
def test_a_rule_that_is_no_function_is_refused(rule: Any) -> None:
    with pytest.raises(RegistrationError, match="a rule is a function"):
        fresh().implements_function(F.relu)(rule)


def test_a_rule_without_a_name_is_refused() -> None:
    with pytest.raises(RegistrationError, match="no name"):
        fresh().implements_function(F.relu)(lambda func, x, inplace=False: None)


def test_no_key_is_refused() -> None:
    def rule(func: Any) -> Any: ...

    with pytest.raises(RegistrationError):
        fresh().implements_function()(rule)


def test_a_signature_that_cannot_take_the_function_is_refused() -> None:
    def no_func() -> Any: ...

    with pytest.raises(RegistrationError, match="func"):
        fresh().implements_function(F.relu)(no_func)


def test_replacing_names_both_places_unless_override() -> None:
    cls = fresh()

    def first(func: Any, *args: Any, **kwargs: Any) -> Any:
        return 1

    def second(func: Any, *args: Any, **kwargs: Any) -> Any:
        return 2

    cls.implements_function(F.relu)(first)
    with pytest.raises(RuleConflictError, match="override=True") as caught:
        cls.implements_function(F.relu)(second)
    for rule in (first, second):
        assert f"test_function_table.py:{rule.__code__.co_firstlineno}" in str(caught.value)
    assert F.relu(cls(torch.ones(1))) == 1
    cls.implements_function(F.relu, override=True)(second)
    assert F.relu(cls(torch.ones(1))) == 2


def test_registering_on_the_base_class_is_refused() -> None:
    def rule(func: Any, *args: Any, **kwargs: Any) -> Any: ...

    try:
        with pytest.raises(RegistrationError, match="WrapperTensor"):
            WrapperTensor.implements_function(F.relu)(rule)
    finally:
        WrapperTensor._function_rules.clear()


def test_compiled_equals_eager() -> None:
    cls = fresh()

    @cls.implements_function(F.linear)
    def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
        return func(input, weight.elem * 2, bias)

    def work(x: Any, w: Any) -> Any:
        return F.linear(x, w) + 1

    x, w = torch.randn(2, 3), cls(torch.randn(4, 3))
    compiled = torch.compile(work, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, w), work(x, w))


def test_a_rule_may_call_the_function_that_it_answers() -> None:
    class Doubling(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.UNWRAP

    @Doubling.implements_function(torch.nn.functional.relu)
    def relu(func: Any, *args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) * 2

    out = torch.nn.functional.relu(Doubling(torch.tensor([-1.0, 3.0])))
    assert type(out) is Doubling
    assert out.elem.tolist() == [0.0, 6.0]
