"""The bench's structure: what is refused, what is restored, how figures are formed. No real time is asserted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lamina.bench import peers
from lamina.bench.budgets import budgets
from lamina.bench.cases import CASES, CIRCUMSTANCES, EAGER, LARGE_ADD, Case, Circumstance, forward_case, tensors_in
from lamina.bench.gaps import gap_lines
from lamina.bench.layers import COMMAND, Options, add_case, add_shares, main, run, trials_of
from lamina.bench.ours import LOGGING, TRANSPARENT, load_ours
from lamina.bench.peers import HAND_WRITTEN, HandWritten, load_peers
from lamina.bench.report import tables
from lamina.bench.results import Figure, Results
from lamina.bench.subjects import PLAIN, Subject, load_subjects
from lamina.bench.timing import (
    Settings,
    Summary,
    Variant,
    describe_machine,
)
from lamina.bench.trials import Gap, Trial, WrongResultError

BRIEF = Settings(rounds=3, loop_ns=1, warmup_ns=1, refuse_above=None)
NOT_THERE = ("torchao.quantization", "optimum.quanto")
SMALL_CASES = [case for case in CASES if case.op != LARGE_ADD]
ADD = next(case for case in CASES if case.op == "add")


@pytest.fixture(autouse=True)
def no_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import takes seconds and warns; without it the bench goes on and says so. The same for optimum-quanto."""
    for name in NOT_THERE:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def hand_written() -> Subject:
    return next(subject for subject in load_peers()[0] if subject.name == HAND_WRITTEN)


def summary(value: float) -> Summary:
    return Summary(value, value, value, (value, value))


def figure(op: str, subject: str, layers: int, nanoseconds: float) -> Figure:
    return Figure(
        f"{op} | {subject} | {layers}",
        op,
        subject,
        layers,
        "eager",
        summary(nanoseconds),
        None,
        None,
        (nanoseconds,) * 3,
    )


# The gate: nothing is timed that is not first checked equal


class OffByOne(HandWritten):
    """Wrong values, right type."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return HandWritten(func(*(arg.elem for arg in args)) + 1)


class Unwrapped(HandWritten):
    """Right values, wrong type: the layer is lost."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(arg.elem for arg in args))


def build(cls: type[HandWritten]) -> Subject:
    def wrap(plain: torch.Tensor) -> torch.Tensor:
        outer = torch.Tensor._make_wrapper_subclass(cls, plain.size(), dtype=plain.dtype, device=plain.device)
        outer.elem = plain
        return outer

    return Subject(cls.__name__, "test", wrap, lambda outer: outer.elem)


@pytest.mark.parametrize(
    ("cls", "reason"), [(OffByOne, "wrong result: off by"), (Unwrapped, "wrong result: a Tensor without 1 layers")]
)
def test_a_wrong_variant_is_refused(cls: type[HandWritten], reason: str) -> None:
    trial = Trial(ADD, build(cls), 1, EAGER)
    with pytest.raises(WrongResultError, match=reason):
        trial.check()
    results = Results({}, BRIEF)
    add_case(results, ADD, [Trial(ADD, PLAIN, 0, EAGER), trial])
    assert [each.subject for each in results.figures] == [PLAIN.name]
    assert [gap.subject for gap in results.gaps] == [cls.__name__]
    assert reason in results.gaps[0].reason


def test_a_result_of_another_dtype_is_refused(hand_written: Subject) -> None:
    def lossy(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left.half() if isinstance(left, HandWritten) else left

    prepared = Trial(Case("lossy", lossy, lossy, ADD.make), hand_written, 1, EAGER).prepare()
    assert isinstance(prepared, Gap)
    assert "dtype torch.float16" in prepared.reason


def test_an_operation_that_raises_is_a_gap_with_its_reason(hand_written: Subject) -> None:
    case = Case("relu", torch.relu, torch.ops.aten.relu.default, lambda: ADD.make()[:1])
    prepared = Trial(case, hand_written, 1, EAGER).prepare()
    assert isinstance(prepared, Gap)
    assert "NotImplementedError" in prepared.reason
    assert "aten.relu.default" in prepared.reason


def test_what_cannot_be_repeated_is_a_gap() -> None:
    no_op = next(subject for subject in load_peers()[0] if not subject.computes)
    linear = next(case for case in CASES if case.op == "linear")
    Trial(linear, no_op, 1, EAGER).check()
    prepared = Trial(linear, no_op, 1, EAGER).prepare()
    assert isinstance(prepared, Gap)
    assert "differentiable view" in prepared.reason


def test_a_subject_that_is_not_installed_is_named() -> None:
    subjects, absences = load_peers()
    assert "torchao Int8Tensor" not in [subject.name for subject in subjects]
    reasons = {absence.subject: absence.reason for absence in absences}
    assert "torchao" in reasons["torchao Int8Tensor"]
    assert "optimum" in reasons["optimum-quanto WeightQBytesTensor"]


def test_a_maker_that_is_broken_is_not_taken_for_missing() -> None:
    with pytest.raises(ZeroDivisionError):
        load_subjects({"broken": lambda: 1 / 0})  # type: ignore[dict-item, return-value]


# The peers


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("case", SMALL_CASES, ids=lambda case: case.op)
def test_the_hand_written_wrapper_is_correct(case: Case, layers: int, hand_written: Subject) -> None:
    Trial(case, hand_written, layers, EAGER).check()


@pytest.mark.parametrize("op", ["add", "mm", "t", "view"])
def test_gradients_pass_through_the_hand_written_wrapper(op: str) -> None:
    case = next(case for case in CASES if case.op == op)
    plain = [arg.requires_grad_() if isinstance(arg, torch.Tensor) else arg for arg in case.make()]
    wrapped = [HandWritten(arg.detach()).requires_grad_() if isinstance(arg, torch.Tensor) else arg for arg in plain]
    expected = case.function(*plain)
    expected_grads = torch.autograd.grad(expected, tensors_in(plain), torch.ones_like(expected))
    cotangent = HandWritten(torch.ones(expected.shape))
    grads = torch.autograd.grad(case.function(*wrapped), tensors_in(wrapped), cotangent)
    assert all(torch.equal(mine.elem, other) for mine, other in zip(grads, expected_grads, strict=True))


@pytest.mark.parametrize("view", [torch.t, torch.detach, lambda x: x.view(2, -1)])
def test_views_of_the_hand_written_wrapper_alias_it(view: Any) -> None:
    outer = HandWritten(torch.ones(2, 3))
    seen = view(outer)
    assert seen.untyped_storage()._cdata == outer.untyped_storage()._cdata
    outer.add_(outer)
    assert torch.equal(seen.elem, torch.full_like(seen.elem, 2))


def test_the_hand_written_wrapper_updates_in_place() -> None:
    outer = HandWritten(torch.ones(2))
    assert outer.add_(torch.ones(2)) is outer
    assert torch.equal(outer.elem, torch.full((2,), 2.0))


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("case", SMALL_CASES, ids=lambda case: case.op)
@pytest.mark.parametrize("subject", load_ours(), ids=lambda subject: subject.name)
def test_the_types_of_lamina_pass_the_gate(subject: Subject, case: Case, layers: int) -> None:
    assert isinstance(Trial(case, subject, layers, EAGER).prepare(), Variant)


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES, ids=lambda circumstance: circumstance.name)
@pytest.mark.parametrize("subject", load_ours(), ids=lambda subject: subject.name)
def test_the_types_of_lamina_pass_in_all_circumstances(subject: Subject, circumstance: Circumstance) -> None:
    gaps = [Trial(case, subject, 1, circumstance).prepare() for case in SMALL_CASES]
    left = {gap.op for gap in gaps if isinstance(gap, Gap)}
    assert left == ({"add_", "_foreach_add_"} if circumstance.requires_grad else set())


def test_a_no_op_answer_holds_only_in_its_scope() -> None:
    answer = torch.ones(1)
    with peers.prepared_answer(answer):
        assert peers.NoOp.answer is answer
    assert peers.NoOp.answer is None


def test_modes_are_entered_once_a_layer() -> None:
    subject = next(subject for subject in load_peers()[0] if subject.name == "empty dispatch mode")
    depth = torch._C._len_torch_dispatch_stack
    with subject.scope_layers(3):
        assert depth() == 3
    assert depth() == 0


# The whole


@pytest.fixture(scope="module")
def results() -> Results:
    with pytest.MonkeyPatch.context() as patch:
        for name in NOT_THERE:
            patch.setitem(sys.modules, name, None)
        return run(Options(ops=("add", "t", "add_"), settings=BRIEF))


def test_every_trial_is_a_figure_or_a_gap_with_a_reason(results: Results) -> None:
    assert all(gap.reason.strip() for gap in results.gaps)
    told = {(each.op, each.subject, each.layers, each.circumstance) for each in [*results.figures, *results.gaps]}
    subjects = [PLAIN, *load_ours(), *load_peers()[0]]
    for case in (case for case in CASES if case.op in ("add", "t", "add_")):
        for trial in trials_of(case, subjects, 4):
            assert (case.op, trial.subject.name, trial.layers, trial.circumstance.name) in told
    assert len(told) == len(results.figures) + len(results.gaps)


def test_all_depths_and_circumstances_are_there(results: Results) -> None:
    for depth in (1, 2, 3, 4):
        for subject in (TRANSPARENT, LOGGING, HAND_WRITTEN, "TwoTensor", "torch LoggingTensor", "empty dispatch mode"):
            assert results.figure("add", subject, depth) is not None
    for circumstance in CIRCUMSTANCES:
        assert results.figure("add", PLAIN.name, 0, circumstance.name) is not None
        assert results.figure("add", HAND_WRITTEN, 1, circumstance.name) is not None
    slope = next(slope for slope in results.slopes if (slope.op, slope.subject) == ("add", HAND_WRITTEN))
    assert sorted(slope.layers) == [0, 1, 2, 3, 4]
    assert slope.to_hand_written == summary(1.0)


def test_the_json_has_its_schema(results: Results) -> None:
    data = json.loads(json.dumps(COMMAND.data(results)))
    assert (data["schema"], data["bench"]) == (1, "layers")
    parts = {
        "machine",
        "settings",
        "not_compiled",
        "stopped",
        "subjects",
        "asked_for",
        "figures",
        "slopes",
        "shares",
        "gaps",
        "absences",
        "budgets",
    }
    assert set(data) == parts | {"schema", "bench"}
    assert data["settings"]["clock"] == "perf_counter_ns"
    one = data["figures"][0]
    assert set(one) == {
        "name",
        "op",
        "subject",
        "layers",
        "circumstance",
        "time_ns",
        "to_plain",
        "to_hand_written",
        "rounds_ns",
    }
    assert set(one["time_ns"]) == {"median", "lower_quartile", "upper_quartile", "interval"}
    assert len(one["rounds_ns"]) == data["settings"]["rounds"] == BRIEF.rounds
    names = [each["name"] for each in data["figures"]]
    assert len(set(names)) == len(names)
    assert "add | hand-written | 1 | eager" in names
    assert data["subjects"]["TwoTensor"] == f"torch {torch.__version__}"


def test_the_plot_is_a_png_of_each_operation(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "layers.png"
    COMMAND.draw(results, path)
    written = path.read_bytes()
    assert written[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(written) > 20_000


def test_tables_name_all_subjects(results: Results) -> None:
    first = tables(results)[0]
    assert first.title.startswith("add ")
    names = {row[0] for row in first.rows}
    assert {"plain", HAND_WRITTEN, "TwoTensor", "torch LoggingTensor", "no-op handler"} <= names
    assert all(len(row) == len(table.heads) for table in tables(results) for row in table.rows)


def test_gap_lines_give_the_reason(results: Results) -> None:
    lines = "\n".join(gap_lines(results.gaps, results.absences))
    assert "no-op handler: add_: it computes nothing" in lines
    assert "torchao Int8Tensor: not available here" in lines


def test_tables_print_without_rich(
    results: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    COMMAND.show(results)
    shown = capsys.readouterr().out
    assert "add (µs a call)\n" in shown
    assert "Gaps:" in shown


def test_shares_of_a_forward() -> None:
    results = Results(describe_machine(), BRIEF)
    named = (HAND_WRITTEN, "no-op handler", "torch FakeTensor")
    subjects = [subject for subject in load_peers()[0] if subject.name in named]
    add_shares(results, forward_case(4, 2), [PLAIN, *subjects])
    assert [share.subject for share in results.shares] == ["plain", HAND_WRITTEN]
    assert results.shares[0].dispatch_share == summary(0.0)


def test_the_command_prints_json_alone_on_stdout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = tmp_path / "t.png"
    monkeypatch.setattr("lamina.bench.layers.Settings", lambda: BRIEF)
    assert main(["--op", "t", "--layers", "1", "--quick", "--cpu-time", "--json", "--plot", str(plot)]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["settings"]["clock"] == "thread_time_ns"
    assert {each["op"] for each in json.loads(output.out)["figures"]} == {"t"}
    assert output.err == ""
    assert plot.exists()


def test_an_unknown_operation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"no such operation: nonsense.*add, mm"):
        run(Options(ops=("nonsense",)))
    with pytest.raises(SystemExit):
        main(["--op", "nonsense"])
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


# Budgets


def test_a_budget_is_met_or_not_by_the_measured_median() -> None:
    results = Results(describe_machine(), BRIEF)
    results.figures = [
        figure("add", "plain", 0, 1.0),
        figure("add", HAND_WRITTEN, 1, 7.0),
        figure("add", "TwoTensor", 1, 60.0),
        *(figure("add", TRANSPARENT, layers, cost) for layers, cost in [(1, 11.0), (2, 20.0), (3, 29.0)]),
    ]
    found = {budget.text: budget for budget in budgets(results)}
    against_hand = found[f"{TRANSPARENT}, add, one layer / {HAND_WRITTEN}"]
    assert against_hand.measured == summary(11 / 7)
    assert against_hand.met is False
    assert found[f"{TRANSPARENT}, add, one layer / TwoTensor"].met is False
    growth = found[f"{TRANSPARENT}, add, a further layer / the first"]
    assert growth.measured == summary(0.9)
    assert growth.met is True
    assert found[f"{TRANSPARENT}, t, one layer / {HAND_WRITTEN}"].met is None
