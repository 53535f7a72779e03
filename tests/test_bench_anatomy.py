"""The anatomy's structure: each variant does what its part says, and no more; no real time is asserted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

import lamina
from lamina.bench.anatomy import entries, floor, outside
from lamina.bench.anatomy.bench import COMMAND, add_case, plan_of, run
from lamina.bench.anatomy.freeing import FIRST, Reserve
from lamina.bench.anatomy.parts import (
    ALIASING,
    CALL,
    DEALLOCATION,
    ENTERING,
    INNER,
    LEAVING,
    LOOK_UP,
    OBSERVING,
    OWN,
    REST,
    SUM,
    UNWRAP,
    WHOLE,
    WRAP,
    Part,
    Plan,
)
from lamina.bench.anatomy.planting import ANSWERED, NOTHING, planted
from lamina.bench.anatomy.report import NOT_MEASURABLE, tables
from lamina.bench.anatomy.results import Anatomies
from lamina.bench.cases import CASES, EAGER, Case, map_tensors
from lamina.bench.layers import Options, main
from lamina.bench.ours import LOGGING, TRANSPARENT, Transparent, load_ours
from lamina.bench.peers import HAND_WRITTEN, HandWritten, hand_written, load_peers
from lamina.bench.subjects import Subject, attribute
from lamina.bench.timing import Settings, describe_machine
from lamina.bench.trials import Trial
from lamina.subclasses.core import unwrap

BRIEF = Settings(rounds=2, loop_ns=1, warmup_ns=0, refuse_above=None)
SLOW = 1000


CLOCK = FakeClock()
DONE: Counter[str] = Counter()


class Counted(torch.Tensor):
    """A plain tensor's stand-in: counts the ops that run on it, which take SLOW."""

    elem: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type[Counted], elem: torch.Tensor) -> Counted:
        self = torch.Tensor._make_wrapper_subclass(cls, elem.shape, strides=elem.stride(), dtype=elem.dtype)
        self.elem = elem
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        DONE["inner"] += 1
        CLOCK.spend(SLOW)
        return func(*map_tensors(args, lambda tensor: tensor.elem if isinstance(tensor, cls) else tensor))


class SlowToMake(torch.Tensor):
    """A foreign class whose constructor takes SLOW."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls: type[SlowToMake], elem: torch.Tensor) -> SlowToMake:
        CLOCK.spend(SLOW)
        self = torch.Tensor._make_wrapper_subclass(cls, elem.shape, strides=elem.stride(), dtype=elem.dtype)
        self.elem = elem
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*(arg.elem if isinstance(arg, cls) else arg for arg in args)))


class SlowToHandle(SlowToMake):
    """A foreign class whose handler takes SLOW beside the constructor."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CLOCK.spend(SLOW)
        return super().__torch_dispatch__(func, types, args, kwargs)


class SlowMetadata(lamina.WrapperTensor):
    """A class of lamina's whose outer tensor takes SLOW to make."""

    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP

    @classmethod
    def outer_metadata(cls, *fields: Any) -> Any:
        CLOCK.spend(SLOW)
        return super().outer_metadata(*fields)


class WrongAdd(SlowToMake):
    """Its sums are off by one, and it lacks mm."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            raise NotImplementedError("no mm here")
        return cls(func(*(arg.elem for arg in args)) + 1)


def case(op: str) -> Case:
    return next(each for each in CASES if each.op == op)


def subject_of(cls: Any) -> Subject:
    return Subject(cls.__name__, "test", cls, attribute("elem"))


def counted_plan(cls: Any, op: str) -> Plan:
    """The plan of a wrapper around counted tensors, its handlers called once already."""
    return plan_of(Trial(case(op), Subject("counted", "test", lambda plain: cls(Counted(plain))), 1, EAGER))


def done_by(plan: Plan, name: str) -> dict[str, int]:
    variant = plan.variants[name]
    with variant.scope():
        DONE.clear()
        variant.function(*variant.args)
        return dict(DONE)


def counting(name: str, function: Any) -> Any:
    def counted(*args: Any) -> Any:
        DONE[name] += 1
        return function(*args)

    return counted


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrapping and aliasing are counted, in lamina and in the hand-written wrapper."""
    for cls in (Transparent, lamina.LoggingTensor):
        generated = cls._generated
        counted = generated._replace(rewrap=counting("wrap", generated.rewrap))
        monkeypatch.setattr(cls, "_generated", counted)
        cls._table.refresh()
    monkeypatch.setattr(unwrap, "share_storage", counting("alias", unwrap.share_storage))
    monkeypatch.setattr(entries, "share_storage", counting("alias", entries.share_storage))
    monkeypatch.setattr(floor, "hold", counting("wrap", floor.hold))
    monkeypatch.setattr(floor, "share_storage", counting("alias", floor.share_storage))


@pytest.fixture(autouse=True)
def tables_as_they_were() -> Any:
    yield
    for cls in (Transparent, lamina.LoggingTensor):
        cls._table.clear()


# What each variant does


@pytest.mark.usefixtures("counters")
@pytest.mark.parametrize("cls", [HandWritten, Transparent, lamina.LoggingTensor], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("op", ["add", "mm", "cat", "t", "view", "detach"])
def test_each_step_does_one_thing_more(cls: Any, op: str) -> None:
    plan = counted_plan(cls, op)
    expected: dict[str, dict[str, int]] = {NOTHING: {}, ANSWERED: {}, LOOK_UP: {}, UNWRAP: {}, INNER: {"inner": 1}}
    expected[WRAP] = {"inner": 1, "wrap": 1}
    if op in ("t", "view", "detach"):
        expected[ALIASING] = {"inner": 1, "wrap": 1, "alias": 1}
    if cls is lamina.LoggingTensor:
        expected[OBSERVING] = {}
    assert {name: done_by(plan, name) for name in expected} == expected
    assert set(plan.variants) >= set(expected)
    assert (ALIASING in plan.variants) is (ALIASING in expected)


@pytest.mark.parametrize("cls", [HandWritten, Transparent], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("op", ["add_", "_foreach_add_"])
def test_an_op_that_writes_wraps_and_frees_nothing(cls: Any, op: str) -> None:
    plan = counted_plan(cls, op)
    assert done_by(plan, UNWRAP) == {}
    assert done_by(plan, INNER) == done_by(plan, WHOLE) == {"inner": 1}
    assert {WRAP, DEALLOCATION}.isdisjoint(part.name for part in plan.parts)


@pytest.mark.parametrize("cls", [HandWritten, Transparent], ids=lambda cls: cls.__name__)
def test_only_the_whole_hands_back_a_wrapper(cls: Any) -> None:
    plan = plan_of(Trial(case("t"), subject_of(cls), 1, EAGER))
    for name in (NOTHING, LOOK_UP, UNWRAP, INNER, WRAP, ALIASING):
        with plan.variants[name].scope():
            assert plan.variants[name].function(*plan.variants[name].args) is None
    with plan.variants[WHOLE].scope():
        assert type(plan.variants[WHOLE].function(*plan.variants[WHOLE].args)) is cls


def test_the_steps_of_the_hand_written_wrapper_are_those_of_its_own_chain() -> None:
    for branch in floor.CHAIN:
        for op in branch.ops:
            *_, (_, lines) = floor._steps(op)
            text = "\n".join(["def whole(cls, func, args, kwargs=None):", *(f"    {line}" for line in lines)])
            compile(text, "whole", "exec")
    assert [op for branch in floor.CHAIN for op in branch.ops][:3] == [
        torch.ops.aten.add.Tensor,
        torch.ops.aten.detach.default,
        torch.ops.aten.t.default,
    ]


def test_the_table_of_a_class_is_as_before() -> None:
    entry, call_of = Transparent._table[torch.ops.aten.add.Tensor], unwrap.call_of
    plan = plan_of(Trial(case("add"), subject_of(Transparent), 1, EAGER))
    with plan.variants[LOOK_UP].scope():
        assert Transparent._table[torch.ops.aten.add.Tensor] is not entry
    assert Transparent._table[torch.ops.aten.add.Tensor] is entry
    assert unwrap.call_of is call_of


def test_what_is_planted_is_taken_away_again() -> None:
    class Base:
        own = 1

    class Child(Base):
        pass

    with planted(Child, "own", 2), planted(Base, "own", 3):
        assert (Child.own, Base.own) == (2, 3)
    assert ("own" in vars(Child), Base.own) == (False, 1)


def test_a_reserve_is_freed_one_a_call_and_grows_to_what_a_loop_takes() -> None:
    made = iter(range(10_000))
    filled: list[int] = []
    reserve = Reserve(lambda: next(made))
    free_one = reserve.function(lambda: filled.append(len(reserve.left)))
    with reserve.scope():
        for _ in range(FIRST + 4):
            free_one()
    assert filled == [*reversed(range(FIRST)), 0, 0, 0, 0]
    assert (reserve.left, reserve.filled) == ([], 2 * (FIRST + 4))
    with reserve.scope():
        assert len(reserve.left) == 2 * (FIRST + 4)
        assert reserve.handler()(None, None, None) is not None


# Where the time lands


def times(subject: Subject, op: str = "add") -> dict[str, float]:
    results = Anatomies(describe_machine(), Settings(rounds=2, loop_ns=1, warmup_ns=0, clock=CLOCK))
    add_case(results, case(op), [subject])
    assert results.gaps == []
    # A loop in which no time passes counts as none; a slow one has one call.
    return {part: figure.time_ns.median for part, figure in results.of(op, subject.name).items()}


def only(**parts: float) -> dict[str, float]:
    return {part: parts.get(part.replace(" ", "_"), 0) for part in (INNER, WRAP, REST, WHOLE, SUM)}


@pytest.mark.parametrize("cls", [SlowToMake, SlowMetadata], ids=lambda cls: cls.__name__)
def test_a_slow_constructor_lands_in_wrap(cls: Any) -> None:
    found = times(subject_of(cls))
    assert {part: found[part] for part in (INNER, WRAP, REST, WHOLE, SUM)} == only(wrap=SLOW, whole=SLOW, sum=SLOW)
    assert found[ENTERING] == found[LEAVING] == found[DEALLOCATION] == found[CALL] == 0


def test_a_slow_handler_lands_in_what_cannot_be_told_apart() -> None:
    found = times(subject_of(SlowToHandle))
    assert (found[WRAP], found[OWN], found[WHOLE], found[REST]) == (SLOW, SLOW, 2 * SLOW, 0)


@pytest.mark.parametrize("cls", [HandWritten, Transparent], ids=lambda cls: cls.__name__)
def test_a_slow_inner_op_lands_in_inner_op(cls: Any) -> None:
    subject = Subject(
        "slow inside", "test", lambda plain: cls(Counted(plain)), lambda outer: getattr(outer.elem, "elem", outer.elem)
    )
    found = times(subject)
    assert {part: found[part] for part in (INNER, WRAP, REST, WHOLE, SUM)} == only(inner_op=SLOW, whole=SLOW, sum=SLOW)


def test_what_a_destructor_takes_lands_in_deallocation() -> None:
    class SlowToFree(SlowToMake):
        def __del__(self) -> None:
            CLOCK.spend(SLOW)

    found = times(subject_of(SlowToFree))
    assert (found[DEALLOCATION], found[WRAP], found[WHOLE], found[REST]) == (SLOW, SLOW, 2 * SLOW, 0)


def test_a_mode_is_entered_and_calls_on() -> None:
    for name in ("empty dispatch mode", "empty function mode"):
        subject = next(each for each in load_peers()[0] if each.name == name)
        plan = plan_of(Trial(case("add"), subject, 1, EAGER))
        assert {ENTERING, INNER, LEAVING, DEALLOCATION} <= {part.name for part in plan.parts}
        for variant in plan.variants.values():
            with variant.scope():
                variant.function(*variant.args)
        with plan.variants[NOTHING].scope():
            assert plan.variants[NOTHING].function(*plan.variants[NOTHING].args) is None


def test_parts_are_differences_round_by_round() -> None:
    rounds = {"a": [5.0, 9.0], "b": [1.0, 2.0], "c": [2.0, 2.0]}
    assert Part("x", ("a", "c"), ("b",)).rounds(rounds) == [6.0, 9.0]
    assert Part("x", ("a",)).rounds(rounds) == [5.0, 9.0]


# The run


@pytest.fixture(scope="module")
def results() -> Anatomies:
    found = Anatomies(describe_machine(), BRIEF)
    subjects = [*load_ours(), hand_written(), *(each for each in load_peers()[0] if each.name == "torch LoggingTensor")]
    found.subjects = {subject.name: subject.origin for subject in subjects}
    for op in ("add", "t", "linear"):
        add_case(found, case(op), subjects)
    return found


def test_sum_and_rest_are_the_whole_in_every_round(results: Anatomies) -> None:
    assert len(results.calls()) == 8
    for op, subject in results.calls():
        parts = results.of(op, subject)
        names = set(parts) - {SUM, REST, WHOLE}
        for number, whole in enumerate(parts[WHOLE].rounds_ns):
            added = sum(parts[name].rounds_ns[number] for name in names)
            assert added == pytest.approx(parts[SUM].rounds_ns[number])
            assert added + parts[REST].rounds_ns[number] == pytest.approx(whole)


def test_an_op_of_several_calls_is_a_gap(results: Anatomies) -> None:
    reasons = {gap.subject: gap.reason for gap in results.gaps}
    assert set(reasons) == {TRANSPARENT, LOGGING, HAND_WRITTEN, "torch LoggingTensor"}
    assert "linear arrives at the handler as aten.t.default, aten.addmm.default" in reasons[TRANSPARENT]


def test_what_cannot_be_measured_is_named(results: Anatomies) -> None:
    hidden = {(each.op, each.part) for each in results.unmeasurable if each.subject == "torch LoggingTensor"}
    assert hidden == {("add", LOOK_UP), ("add", UNWRAP), ("t", LOOK_UP), ("t", UNWRAP), ("t", ALIASING)}
    table = next(table for table in tables(results) if table.title.startswith("t:"))
    column = table.heads.index("torch LoggingTensor")
    assert {row[0]: row[column] for row in table.rows}[ALIASING] == NOT_MEASURABLE
    assert results.notes["add | torch LoggingTensor"] == ["inner op: aten.add.Tensor"]


def test_the_json_has_the_shape_of_all_benches(results: Anatomies) -> None:
    data = json.loads(json.dumps(COMMAND.data(results)))
    assert (data["schema"], data["bench"], data["budgets"]) == (1, "anatomy", [])
    names = [figure["name"] for figure in data["figures"]]
    assert len(set(names)) == len(names)
    assert f"add | {HAND_WRITTEN} | wrap" in names
    assert set(data["figures"][0]["time_ns"]) == {"median", "lower_quartile", "upper_quartile", "interval"}
    assert len(data["figures"][0]["rounds_ns"]) == BRIEF.rounds


def test_the_words_hold_parts_and_gaps(results: Anatomies, capsys: pytest.CaptureFixture[str]) -> None:
    COMMAND.show(results)
    shown = capsys.readouterr().out
    for text in ("rest", "whole", "a stand-in cost", "wrap: making the outer tensor", "Gaps:", "SeveralCallsError"):
        assert text in shown


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_plot_is_a_picture(results: Anatomies, tmp_path: Path, suffix: str, begins: bytes) -> None:
    COMMAND.draw(results, tmp_path / f"anatomy{suffix}")
    written = (tmp_path / f"anatomy{suffix}").read_bytes()
    assert written.startswith(begins)
    assert len(written) > 10_000


def test_of_nothing_but_gaps_no_plot_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    COMMAND.draw(Anatomies(describe_machine(), BRIEF), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    assert "nothing to draw" in capsys.readouterr().err


def test_a_wrong_class_is_refused_and_a_lacking_op_is_a_gap(capsys: pytest.CaptureFixture[str]) -> None:
    brief = ["--anatomy", "--quick", "--cpu-time", "--json", "--class", f"{__name__}:WrongAdd"]
    assert main([*brief, "--op", "add", "--op", "mm"]) == 1
    data = json.loads(capsys.readouterr().out)
    mine = {gap["op"]: gap for gap in data["gaps"] if gap["subject"] == "WrongAdd"}
    assert {op: gap["kind"] for op, gap in mine.items()} == {"add": "wrong", "mm": "lacking"}
    assert "no mm here" in mine["mm"]["reason"]
    assert "WrongAdd" not in {figure["subject"] for figure in data["figures"]}
    assert HAND_WRITTEN in {figure["subject"] for figure in data["figures"]}


def test_a_class_of_lamina_with_rules_has_its_look_up_measured() -> None:
    subject = Subject("ScaledInt8", "test", lamina.ScaledInt8Tensor.from_plain, lambda outer: outer.to_plain())
    plan = plan_of(Trial(case("detach"), subject, 1, EAGER))
    assert {LOOK_UP, INNER, WRAP, OWN} <= {part.name for part in plan.parts}
    assert [each.part for each in plan.unmeasured] == [UNWRAP, ALIASING]
    assert not entries.runs_on_inner(lamina.ScaledInt8Tensor, torch.ops.aten.detach.default)


def test_a_constructor_that_takes_something_else_is_told() -> None:
    class Named(SlowToMake):
        @staticmethod
        def __new__(cls: Any, elem: torch.Tensor, name: str) -> Any:
            return SlowToMake.__new__(cls, elem)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return cls(func(*(arg.elem for arg in args)), "name")

    subject = Subject("Named", "test", lambda plain: Named(plain, "name"), attribute("elem"))
    plan = plan_of(Trial(case("add"), subject, 1, EAGER))
    (wrap,) = [each for each in plan.unmeasured if each.part == WRAP]
    assert "missing 1 required positional argument: 'name'" in wrap.reason
    assert WRAP not in plan.variants
    assert outside.HANDLER in plan.variants


def test_a_run_measures_the_chosen_subjects_and_says_what_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.bench.anatomy.bench.SUBJECTS", (HAND_WRITTEN,))
    begun: list[Anatomies] = []
    said: list[str] = []
    found = run(Options(("add_",), settings=BRIEF), lambda doing, _: said.append(doing), begun.append)
    assert begun == [found]
    assert said == ["add_"]
    assert found.calls() == [("add_", HAND_WRITTEN)]
