"""The one guarded path: no swallowed error, no wrong owner, nothing that an author can forget."""

from __future__ import annotations

# ruff: noqa: ARG005, PLW0108 - signatures are those of schemas and hooks; each call is written out
import functools
import operator
import re
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Scaled, Tagged
from torch.testing._internal.two_tensor import TwoTensor

from lamina import Fallback, Kind, LaminaError, MissingRuleError, RuleTypeError, WrapperTensor, op_table

aten = torch.ops.aten

COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne"]
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"]
ARITHMETIC += ["lshift", "rshift"]
IN_PLACE = [
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "ilshift",
    "irshift",
]
INTEGER = {"and_", "or_", "xor", "lshift", "rshift", "iand", "ior", "ixor", "ilshift", "irshift"}
SIDES = ["w-w", "w-plain", "plain-w", "w-scalar", "scalar-w", "w-0d", "0d-w"]
MODES: dict[str, Any] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}
FAILURES = ["missing", "type-error", "declines"]


def fresh(fallback: Fallback = Fallback.ERROR, name: str = "Fresh", **body: Any) -> Any:
    return type(name, (WrapperTensor,), {"__annotations__": {"elem": torch.Tensor}, "fallback": fallback, **body})


class Foreign(torch.Tensor):
    """A well-behaved wrapper of somebody else's: it knows itself only."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: Any, *shape: int) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


@functools.cache
def failing(how: str, name: str = "Fresh") -> Any:
    cls = fresh(name=name)
    if how == "missing":
        return cls

    def fail(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if how == "declines":
            return NotImplemented
        raise TypeError("a mistake of the author")

    cls.implements(*Kind)(fail)

    def fail_exactly(op: Any, *args: Any, **kwargs: Any) -> Any:
        return fail(op, args, kwargs)

    cls.implements(aten.mm.default, aten.floor_divide.default, aten.floor_divide.Scalar)(fail_exactly)
    return cls


def operands(cls: Any, side: str, dtype: torch.dtype) -> tuple[Any, Any]:
    values = torch.full((2, 2), 2, dtype=dtype)
    choice = {"w": cls(values), "plain": values.clone(), "scalar": 2, "0d": torch.tensor(2, dtype=dtype)}
    left, right = side.split("-")
    return choice[left], choice[right] if right != left else cls(values.clone())


def dtype_of(name: str) -> torch.dtype:
    return torch.int64 if name in INTEGER else torch.float32


def outcome(name: str, left: Any, right: Any) -> Any:
    """What an operator does: its value, or the error."""
    try:
        return getattr(operator, name)(left, right)
    except Exception as error:  # noqa: BLE001 - the subject
        return error


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("name", [*COMPARISONS, *ARITHMETIC, *IN_PLACE])
def test_an_operator_without_an_answer_is_an_error_that_names_op_and_class(name: str, how: str) -> None:
    for side in SIDES[:3] if name == "matmul" else SIDES:
        out = outcome(name, *operands(failing(how), side, dtype_of(name)))
        assert isinstance(out, RuleTypeError if how == "type-error" else MissingRuleError), side
        assert not isinstance(out, TypeError), side
        assert re.search(r"aten\.\w+\.\w+.*Fresh", str(out)), side


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("name", ["neg", "pos", "invert", "abs"])
def test_unary_operators_too(name: str, how: str) -> None:
    if name == "pos":
        w = failing(how)(torch.ones(2))
        assert +w is w or torch.equal((+w).elem, w.elem)
        return
    with pytest.raises(LaminaError, match="Fresh"):
        getattr(operator, name)(failing(how)(torch.ones(2, dtype=torch.int64)))


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("first_goes", [0, 1])
def test_two_unrelated_classes_without_an_answer(first_goes: int, how: str) -> None:
    one, two = failing(how), failing("missing", "Second")
    for name in [*COMPARISONS, *ARITHMETIC, *IN_PLACE]:
        pair = [cls(torch.full((2, 2), 2, dtype=dtype_of(name))) for cls in (one, two)]
        out = outcome(name, pair[first_goes], pair[1 - first_goes])
        assert isinstance(out, LaminaError), name
        assert re.search(r"aten\.\w+\.\w+.*Fresh", str(out)), name
        if how == "type-error":
            assert "test_boundary.py:" in str(out), name
        else:
            assert "Second" in str(out), name


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("foreign_first", [True, False])
def test_a_foreign_wrapper_that_cannot_answer_either(foreign_first: bool, how: str) -> None:
    w, foreign = failing(how)(torch.ones(2, 2)), Foreign(2, 2)
    pair = (foreign, w) if foreign_first else (w, foreign)
    for name in [*COMPARISONS, "add", "sub", "mul", "matmul", "iadd"]:
        out = outcome(name, *pair)
        assert isinstance(out, LaminaError), name
        assert re.search(r"aten\.\w+.*Fresh", str(out)), name


@pytest.mark.parametrize("foreign_first", [True, False])
@pytest.mark.parametrize("how", FAILURES)
def test_torchs_two_tensor_never_makes_a_plain_false_of_it(how: str, foreign_first: bool) -> None:
    w, foreign = failing(how)(torch.ones(2, 2)), TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
    pair = (foreign, w) if foreign_first else (w, foreign)
    for name in [*COMPARISONS, "add", "sub", "mul"]:
        out = outcome(name, *pair)
        assert isinstance(out, (torch.Tensor, Exception)), name
        assert not isinstance(out, TypeError), name


def test_the_type_error_is_carried_and_its_rule_named() -> None:
    cls = fresh()

    @cls.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return len(3)  # type: ignore[arg-type]

    with pytest.raises(RuleTypeError) as caught:
        cls(torch.ones(1)) + 1
    assert isinstance(caught.value.__cause__, TypeError)
    assert f"test_boundary.py:{add.__code__.co_firstlineno}" in str(caught.value)
    assert "has no len()" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError, IndexError, ZeroDivisionError, AttributeError])
def test_other_errors_of_a_rule_come_out_as_they_are(error: type[Exception]) -> None:
    cls = fresh()

    @cls.implements(aten.eq.Scalar)
    def eq(op: Any, self: Any, other: Any) -> Any:
        raise error("mine")

    with pytest.raises(error, match="mine"):
        cls(torch.ones(1)) == 1  # noqa: B015


@pytest.mark.parametrize("cls", [Clear, Doubled])
def test_a_type_error_of_the_op_under_a_fallback_is_no_plain_false(cls: Any) -> None:
    class Odd(Foreign):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise TypeError("from below")

    with pytest.raises(RuleTypeError, match="TypeError"):
        cls(Odd(2)) == 1  # noqa: B015


def test_comparing_with_something_that_is_no_tensor_is_pythons_business() -> None:
    w = Clear(torch.ones(2))
    assert (w == "text") is False
    assert (w == None) is False  # noqa: E711
    assert (w != "text") is True
    with pytest.raises(TypeError):
        w + "text"


# several classes in one call


def answering(name: str, precedence: int, log: list[str], *, declines: bool = False) -> Any:
    cls = fresh(name=name, precedence=precedence)

    @cls.implements(*Kind)
    def answer(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log.append(name)
        if declines:
            return NotImplemented
        return None if not op._schema.returns else torch.full((2,), float(precedence))

    @cls.implements(aten.cat.default)
    def cat(op: Any, tensors: Any, dim: Any = 0) -> Any:
        return answer(op, (), {})

    return cls


CALLS: dict[str, Any] = {
    "positional": lambda a, b: torch.add(a, b),
    "keyword": lambda a, b: aten.add.Tensor(self=a, other=b),
    "operator": lambda a, b: a + b,
    "comparison": lambda a, b: a == b,
    "list": lambda a, b: torch.cat([a, b]),
    "mixed list": lambda a, b: torch._foreach_add_([a, b], 1),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mode", MODES)
def test_the_higher_precedence_goes_first_in_either_order(call: str, mode: str) -> None:
    log: list[str] = []
    low, high = answering("Low", 1, log), answering("High", 2, log)
    pair = [low(torch.ones(2)), high(torch.ones(2))]
    with MODES[mode]():
        CALLS[call](*pair)
        CALLS[call](*reversed(pair))
    assert log == ["High", "High"]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_where_the_higher_declines_the_lower_answers(call: str, order: int) -> None:
    log: list[str] = []
    low, high = answering("Low", 1, log), answering("High", 2, log, declines=True)
    pair = [low(torch.ones(2)), high(torch.ones(2))]
    CALLS[call](pair[order], pair[1 - order])
    assert log == ["High", "Low"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_three_classes_are_asked_in_order_of_precedence(order: tuple[int, ...]) -> None:
    log: list[str] = []
    classes = [answering(f"P{p}", p, log, declines=True) for p in (1, 2, 3)]
    values = [classes[i](torch.ones(2)) for i in order]
    with pytest.raises(MissingRuleError, match="every class among the arguments declined"):
        torch.addcmul(*values)
    assert log == ["P3", "P2", "P1"]


def test_a_subclass_is_asked_before_its_parent_at_equal_precedence() -> None:
    """As Python and torch do."""
    log: list[str] = []
    parent = answering("Parent", 0, log)
    child = type("Child", (parent,), {})

    @child.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        log.append("Child")
        return torch.ones(2)

    parent(torch.ones(2)) + child(torch.ones(2))
    child(torch.ones(2)) + parent(torch.ones(2))
    assert log == ["Child", "Child"]


@pytest.mark.parametrize("order", [0, 1])
def test_an_observer_stays_outside_a_representation(order: int) -> None:
    class Observer(Clear):
        precedence = 10

    pair = [Observer(torch.ones(2)), Doubled(torch.ones(2))]
    out: Any = pair[order] + pair[1 - order]
    assert type(out) is Observer
    assert type(out.elem) is torch.Tensor
    assert out.elem.tolist() == [3, 3]


@pytest.mark.parametrize("order", [0, 1])
def test_two_fallback_classes_of_equal_precedence_give_the_same_values(order: int) -> None:
    for one, two in ((Clear, Tagged), (Clear, Doubled), (Doubled, Scaled), (Tagged, Scaled)):
        pair = [one.from_plain(torch.full((2,), 2.0)), two.from_plain(torch.full((2,), 4.0))]
        out = pair[order] - pair[1 - order]
        while isinstance(out, WrapperTensor):
            out = out.to_plain()
        assert torch.allclose(out, torch.full((2,), -2.0 if order == 0 else 2.0)), (one, two)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_a_foreign_wrapper_that_can_answer_is_asked(order: int, mode: str) -> None:
    class Answering(Foreign):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return torch.full((2,), 42.0)

    pair = [Answering(2), fresh()(torch.ones(2))]
    with MODES[mode]():
        out = pair[order] + pair[1 - order]
    assert out.tolist() == [42, 42]


def test_torchs_tracers_count_as_plain() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    log: list[Any] = []
    cls = fresh()

    @cls.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        log.append(type(other).__name__)
        return cls(self.elem + other)

    with FakeTensorMode() as mode:
        out = cls(mode.from_tensor(torch.ones(2))) + mode.from_tensor(torch.ones(2))
    assert type(out) is cls
    assert log == ["FakeTensor"]


def test_nested_classes_take_one_level_off() -> None:
    for outer, inner in ((Clear, Tagged), (Clear, Clear), (Tagged, Doubled), (Doubled, Clear), (Clear, Scaled)):
        values = torch.ones(2, 2)
        w = outer.from_plain(inner.from_plain(values))
        assert type(w) is outer
        out: Any = w + 1
        while isinstance(out, WrapperTensor):
            out = out.to_plain()
        assert torch.equal(out, values + 1), (outer, inner)


# what an author forgets


def test_an_inner_tensor_never_leaves_as_a_result() -> None:
    cls = fresh()

    @cls.implements(aten.neg.default)
    def neg(op: Any, self: Any) -> Any:
        return self.elem

    @cls.implements(aten.split.Tensor)
    def split(op: Any, self: Any, split_size: Any, dim: Any = 0) -> Any:
        return [self.elem, self.elem]

    @cls.implements(aten.cat.default)
    def cat(op: Any, tensors: Any, dim: Any = 0) -> Any:
        return tensors[0].elem

    @cls.implements(aten.sort.default)
    def sort(op: Any, self: Any, dim: Any = -1, descending: Any = False) -> Any:
        return self.elem, self.elem

    w = cls(torch.ones(2)).requires_grad_()
    results = [torch.neg(w), *torch.split(w, 1), torch.cat([w, w]), *torch.sort(w)]
    assert all(out is not w.elem for out in results)
    assert not w.elem.requires_grad
    assert w.elem.grad_fn is None


def test_an_inner_tensor_given_by_keyword_never_leaves_either() -> None:
    cls = fresh()

    @cls.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return other.elem

    w = cls(torch.ones(2))
    assert aten.add.Tensor(self=torch.ones(2), other=w) is not w.elem


def test_an_in_place_rule_need_not_return_its_argument() -> None:
    cls = fresh()

    @cls.implements(aten.add_.Tensor)
    def add_(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        self.elem.add_(other)

    w = cls(torch.ones(2))
    assert w.add_(1) is w
    assert w.elem.tolist() == [2, 2]


@pytest.mark.parametrize("answer", ["nothing", "the argument", "its inner tensor"])
def test_an_out_rule_need_not_return_its_argument(answer: str) -> None:
    cls = fresh()

    @cls.implements(aten.add.out)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1, out: Any) -> Any:
        inner = out.elem.copy_(self.elem + other)
        return {"nothing": None, "the argument": out, "its inner tensor": inner}[answer]

    w, target = cls(torch.ones(2)), cls(torch.zeros(2))
    assert torch.add(w, 1, out=target) is target
    assert target.elem.tolist() == [2, 2]


@pytest.mark.parametrize("view", [lambda w: w.view(4), lambda w: w.t(), lambda w: w[0], lambda w: w.split(1)[1]])
def test_the_result_of_a_view_rule_aliases_the_wrapper(view: Any) -> None:
    cls = fresh()

    @cls.implements(aten.view.default, aten.select.int, aten.t.default)
    def one(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return cls(op(self.elem, *args, **kwargs))

    @cls.implements(aten.split.Tensor)
    def split(op: Any, self: Any, split_size: Any, dim: Any = 0) -> Any:
        return [cls(piece) for piece in op(self.elem, split_size, dim)]

    w = cls(torch.ones(2, 2))
    out = view(w)
    assert out.untyped_storage()._cdata == w.untyped_storage()._cdata
    assert out._is_view()
    assert out._base is w


def test_geometry_follows_a_rule_that_changes_it() -> None:
    cls = fresh()

    @cls.implements(aten.t_.default, aten.unsqueeze_.default, aten.squeeze_.default, aten.resize_.default)
    def change(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        op(self.elem, *args, **kwargs)

    w = cls(torch.ones(2, 3))
    for change_it in (lambda: w.t_(), lambda: w.unsqueeze_(0), lambda: w.squeeze_(), lambda: w.resize_(4, 5)):
        assert change_it() is w
        assert (w.size(), w.stride()) == (w.elem.size(), w.elem.stride())


@pytest.mark.parametrize("mode", MODES)
def test_hits_count_once_a_call(mode: str) -> None:
    cls = fresh(Fallback.UNWRAP)
    w = cls(torch.ones(2))
    with MODES[mode]():
        for _ in range(3):
            w + 1
        w + w
    entries = op_table(cls)
    assert entries[aten.add.Tensor].hits == 4


def test_an_observer_wraps_every_answer_once() -> None:
    made: list[Any] = []
    ran: list[Any] = []

    class Watched(Clear):
        @classmethod
        def around(cls, op: Any, run: Any) -> Any:
            made.append(op)

            def watch(args: Any, kwargs: Any) -> Any:
                ran.append(op)
                return run(args, kwargs)

            return watch

    w = Watched(torch.ones(2))
    w + 1
    w + 1
    w.add_(1)
    assert made == [aten.add.Tensor, aten.add_.Tensor]
    assert ran == [aten.add.Tensor, aten.add.Tensor, aten.add_.Tensor]


def ruled(op: Any, answer: Any) -> Any:
    cls = fresh()

    def rule(op: Any, *args: Any, **kwargs: Any) -> Any:
        return answer(cls, *args)

    cls.implements(op)(rule)
    return cls


WRONG_RESULTS: dict[str, tuple[Any, Any, Any]] = {
    "in-place without a write": (aten.add_.Tensor, lambda cls, w, other: cls(w.elem + other), lambda w: w.add_(1)),
    "in-place plain result": (aten.add_.Tensor, lambda cls, w, other: w.elem + other, lambda w: w.add_(1)),
    "out without a write": (aten.add.out, lambda cls, w, other: cls(w.elem + other), lambda w: torch.add(w, 1, out=w)),
    "forgotten return": (aten.neg.default, lambda cls, w: None, torch.neg),
    "no tensor": (aten.neg.default, lambda cls, w: "text", torch.neg),
    "a tuple for one": (aten.neg.default, lambda cls, w: (w, w), torch.neg),
    "one for two": (aten.sort.default, lambda cls, w: w, torch.sort),
    "three for two": (aten.sort.default, lambda cls, w: (w, w, w), torch.sort),
    "one for a list": (aten.split.Tensor, lambda cls, w, size: w, lambda w: torch.split(w, 1)),
    "none in a list": (aten.split.Tensor, lambda cls, w, size: [w, None], lambda w: torch.split(w, 1)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", WRONG_RESULTS)
def test_a_result_that_the_schema_does_not_have_names_the_rule(case: str, mode: str) -> None:
    op, answer, call = WRONG_RESULTS[case]
    w = ruled(op, answer)(torch.ones(2, 2))
    with MODES[mode](), pytest.raises(LaminaError, match=r"test_boundary\.py:\d+") as caught:
        call(w)
    assert str(op) in str(caught.value)


class HandsOn(Foreign):
    """A foreign wrapper that hands a call on where it sees another type, as DTensor does."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t is not cls for t in types):
            return func(*args, **(kwargs or {}))
        raise RuntimeError("the foreign one was asked alone")


@pytest.mark.parametrize("call", [lambda w, f: w + f, lambda w, f: w == f, lambda w, f: torch.cat([w, f])])
def test_a_foreign_class_that_hands_the_call_on_is_asked_once(call: Any) -> None:
    with pytest.raises(RuntimeError, match="the foreign one was asked alone"):
        call(Clear(torch.ones(2)), HandsOn(2))
