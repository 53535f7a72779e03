"""The int8 bench: what each subject runs, what is refused, how budgets are formed. No real time is asserted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import lamina
import lamina.commands
from lamina.bench.budget import Budget
from lamina.bench.compiler import COMPILED, EAGER
from lamina.bench.int8 import measuring, options, peers
from lamina.bench.int8.accuracy import EIGHT_BITS, FLOAT, MOST_DECIBELS, SIXTEEN_BITS, References, decibels
from lamina.bench.int8.budgets import budgets
from lamina.bench.int8.command import COMMAND
from lamina.bench.int8.measuring import load_subjects, run, work
from lamina.bench.int8.options import Options, chosen_options, parser
from lamina.bench.int8.peers import INT_MM, READ_FLOAT, READ_INT8, TORCHAO_DYNAMIC, TORCHAO_WEIGHT_ONLY
from lamina.bench.int8.problems import ROWS, SHAPES, Layer, Problem
from lamina.bench.int8.report import tables
from lamina.bench.int8.results import Decibels, Figure, Results, StepFigure
from lamina.bench.int8.step import FP32, INT16, STOCHASTIC, WRAPPINGS, Sizes, StepTrial
from lamina.bench.int8.subjects import OURS, PLAIN, PLAIN_BFLOAT16, Subject, dequantized, linear, ours
from lamina.bench.int8.trials import Built, Passed, Trial
from lamina.bench.progress import silent
from lamina.bench.timing import Settings, Summary, Variant, describe_machine
from lamina.bench.trials import Gap, WrongResultError

BRIEF = Settings(rounds=3, loop_ns=1, warmup_ns=1, refuse_above=None)
TINY = Options(shapes=((48, 64),), rows=(1, 5), not_compiled="a test.", seconds=1e-9, fewest=2, settings=BRIEF)
TINY_SIZES = Sizes(width=32, hidden=48, batch=8)
LAYER = Layer(48, 64, "float32")
PROBLEM = Problem.of(LAYER, 5)
NAMES = [ours(activation, packed=packed) for activation, packed in OURS]
TORCHAO = [TORCHAO_WEIGHT_ONLY, TORCHAO_DYNAMIC]
FLOORS = [INT_MM, READ_FLOAT, READ_INT8]


def named(name: str, layer: Layer = LAYER) -> Subject:
    return next(subject for subject in load_subjects(layer)[0] if subject.name == name)


def prepared(subject: Subject, problem: Problem = PROBLEM, mode: str = EAGER) -> Passed | Gap:
    activations = problem.activations(problem.rows)
    with peers.quiet_peers():
        return Trial(Built(subject, problem.layer), problem, mode).prepare(activations, References(activations))


def calls_of_operator(variant: Variant) -> int:
    """How often lamina's int8 product runs, at any depth."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        variant.function(*variant.args)
    return sum(event.count for event in profile.key_averages() if event.key.startswith("lamina::int8_"))


@pytest.fixture(autouse=True)
def compiled_code_is_dropped() -> Iterator[None]:
    yield
    torch.compiler.reset()


# The subjects run what they are named for


def test_all_subjects_are_there() -> None:
    found, absences = load_subjects(LAYER)
    assert [subject.name for subject in found] == [PLAIN, PLAIN_BFLOAT16, *TORCHAO, *FLOORS, *NAMES]
    assert absences == []
    halves, _ = load_subjects(replace(LAYER, dtype="bfloat16"))
    assert PLAIN_BFLOAT16 not in [subject.name for subject in halves]


@pytest.mark.parametrize(("activation", "packed"), OURS)
def test_weights_of_lamina_are_what_the_name_says(activation: str, packed: bool) -> None:
    weight = named(ours(activation, packed=packed)).build(LAYER.weight()).weight
    assert isinstance(weight.data, lamina.PackedInt8Tensor if packed else lamina.ScaledInt8Tensor)
    assert weight.activation == activation
    assert not weight.requires_grad


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("activation", "packed"), OURS)
def test_products_of_lamina_run_through_its_operator(activation: str, packed: bool, dtype: str) -> None:
    problem = replace(PROBLEM, dtype=dtype)
    passed = prepared(named(ours(activation, packed=packed)), problem)
    assert isinstance(passed, Passed), passed
    decoded = activation == "float" and dtype == "float32"  # so small a weight is decoded by its rule
    with torch.no_grad():
        assert calls_of_operator(passed.variant) == (not decoded)


@pytest.mark.parametrize("name", TORCHAO)
def test_torchao_has_its_tensor_and_its_activations(name: str) -> None:
    weight = named(name).build(LAYER.weight()).weight
    assert type(weight.data).__name__ == "Int8Tensor"
    assert (weight.act_quant_kwargs is not None) is (name == TORCHAO_DYNAMIC)


def test_floors_do_their_part_only() -> None:
    module = named(INT_MM).build(LAYER.weight())
    activations = named(INT_MM).prepare(LAYER.activations(5))
    assert activations.dtype is torch.int8
    assert module(activations).dtype is torch.int32
    assert torch.equal(module(activations).long(), activations.long() @ module.columns.long())
    for name, nbytes in ((READ_FLOAT, 48 * 64 * 4), (READ_INT8, 48 * 64)):
        assert named(name).build(LAYER.weight()).memory.nbytes == nbytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [PLAIN, PLAIN_BFLOAT16, *TORCHAO, *FLOORS])
def test_peers_pass_the_gate(name: str, dtype: str) -> None:
    if (name, dtype) == (PLAIN_BFLOAT16, "bfloat16"):
        return
    problem = replace(PROBLEM, dtype=dtype)
    passed = prepared(named(name, problem.layer), problem)
    assert isinstance(passed, Passed), passed
    assert (passed.decibels is None) is (name in FLOORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [PLAIN, PLAIN_BFLOAT16, *TORCHAO, *NAMES])
def test_compiled_subjects_pass_the_gate_in_one_graph(name: str) -> None:
    passed = prepared(named(name), mode=COMPILED)
    assert isinstance(passed, Passed), passed
    assert passed.decibels is not None


# The gate


@pytest.mark.parametrize(
    ("accuracy", "activation", "reason"),
    [(EIGHT_BITS, "float", "a product of 8-bit activations gives 30 to 60"), (FLOAT, "int8", "a float product gives")],
)
def test_another_path_than_the_one_named_is_refused(accuracy: object, activation: str, reason: str) -> None:
    gap = prepared(replace(named(ours(activation)), accuracy=accuracy))
    assert isinstance(gap, Gap)
    assert (gap.op, gap.circumstance) == ("float32 48x64 M=5", EAGER)
    assert reason in gap.reason


def test_a_result_of_another_shape_is_refused() -> None:
    class Cut(nn.Linear):
        def forward(self, activations: Tensor) -> Tensor:
            return super().forward(activations)[:1]

    def build(weight: Tensor) -> nn.Module:
        cut = Cut(64, 48, bias=False)
        cut.weight = nn.Parameter(weight, requires_grad=False)
        return cut

    gap = prepared(Subject("cut", "test", build, FLOAT))
    assert isinstance(gap, Gap)
    assert "shape (1, 48), plain torch gives (5, 48)" in gap.reason


class Breaking(nn.Linear):
    def forward(self, activations: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return super().forward(activations)


class Recompiling(nn.Linear):
    calls = 0

    def forward(self, activations: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(activations) * (self.calls - self.calls + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "reason"), [(Breaking, "graph_break"), (Recompiling, "wrong way: 2 graphs were compiled")]
)
def test_what_is_not_one_graph_is_refused(cls: type[nn.Linear], reason: str) -> None:
    def build(weight: Tensor) -> nn.Module:
        layer = cls(64, 48, bias=False)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        return layer

    gap = prepared(Subject("several graphs", "test", build, FLOAT), mode=COMPILED)
    assert isinstance(gap, Gap)
    assert reason in gap.reason


def test_a_subject_that_cannot_be_built_is_a_gap() -> None:
    def build(weight: Tensor) -> nn.Module:
        raise NotImplementedError(f"not for {tuple(weight.shape)}")

    gap = prepared(Subject("none", "test", build, FLOAT))
    assert isinstance(gap, Gap)
    assert gap.reason == "NotImplementedError: not for (48, 64)"


def test_decibels_of_known_errors() -> None:
    exact = torch.full((100,), 10.0, dtype=torch.float64)
    assert decibels(exact + 1, exact) == pytest.approx(20)
    assert decibels(exact.float() * 1.001, exact) == pytest.approx(60, abs=0.01)
    assert decibels(exact, exact) == pytest.approx(MOST_DECIBELS)
    assert decibels(exact * float("nan"), exact) == -MOST_DECIBELS


@pytest.mark.parametrize(
    ("accuracy", "found", "dtype"),
    [
        (FLOAT, 99.0, torch.float32),
        (SIXTEEN_BITS, 60.0, torch.float32),
        (SIXTEEN_BITS, 130.0, torch.float32),
        (SIXTEEN_BITS, 43.0, torch.bfloat16),
        (EIGHT_BITS, 52.0, torch.bfloat16),
        (EIGHT_BITS, -MOST_DECIBELS, torch.float32),
    ],
)
def test_accuracies_outside_their_range(accuracy: object, found: float, dtype: torch.dtype) -> None:
    with pytest.raises(WrongResultError, match="wrong result"):
        accuracy.check(found, dtype)  # type: ignore[attr-defined]


def test_references_are_exact_products_made_once_a_weight() -> None:
    activations, weight = LAYER.activations(5), LAYER.weight()
    references = References(activations)
    first = references.product(weight)
    assert torch.equal(first, activations.double() @ weight.double().t())
    assert references.product(weight.clone()) is first
    assert references.product(weight + 1) is not first


def test_dequantized_reads_plain_and_quantized_weights() -> None:
    weight = LAYER.weight()
    assert torch.equal(dequantized(linear(weight)), weight)
    quantized = lamina.ScaledInt8Tensor.quantize(weight)
    assert torch.equal(dequantized(linear(quantized)), quantized.dequantize())
    with pytest.raises(TypeError, match="no tensor but a NoneType"):
        dequantized(nn.BatchNorm1d(3, affine=False))


# The training step


@pytest.mark.parametrize("subject", WRAPPINGS)
def test_a_training_step_writes_the_weights_it_is_named_for(subject: str) -> None:
    trial = StepTrial(subject, EAGER, TINY_SIZES)
    weight = trial.model[0].weight
    before = weight.detach().clone()
    trial.check()
    assert len(trial.losses) == 5
    assert not torch.equal(trial.model[0].weight.detach(), before)
    assert isinstance(weight.data, lamina.ScaledInt8Tensor) is (subject != FP32)
    if subject != FP32:
        assert (weight.activation, weight.rounding) == ("int16", "stochastic" if subject == STOCHASTIC else "nearest")


def test_a_training_step_goes_through_the_operator_forward_and_backward() -> None:
    trial = StepTrial(INT16, EAGER, TINY_SIZES)
    assert calls_of_operator(trial.variant) >= 3  # two forwards, and the gradient of the hidden activations


def test_a_model_that_does_not_learn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = StepTrial(FP32, EAGER, TINY_SIZES)
    monkeypatch.setattr(trial, "step", lambda *_: torch.ones(()))
    with pytest.raises(WrongResultError, match=r"the loss went from 1\.0000 to 1\.0000"):
        trial.check()


# The whole


@pytest.fixture(scope="module")
def results() -> Results:
    return run(TINY, silent, sizes=TINY_SIZES)


def test_every_subject_has_a_row_in_every_problem(results: Results) -> None:
    assert results.gaps == []
    for dtype, names in (("float32", [PLAIN, PLAIN_BFLOAT16]), ("bfloat16", [PLAIN])):
        for rows in TINY.rows:
            problem = Problem(48, 64, dtype, rows)
            for name in (*names, *TORCHAO, *FLOORS, *NAMES):
                figure = results.figure(problem, name, EAGER)
                assert figure is not None, (problem, name)
                assert len(figure.rounds_ns) == 2
                assert figure.speedup is not None
                assert figure.weight_bytes > 0
                assert (figure.decibels is None) is (name in FLOORS)
    assert [(step.subject, step.mode) for step in results.steps] == [(name, EAGER) for name in WRAPPINGS]


def test_progress_counts_to_the_announced_work() -> None:
    done = []
    run(TINY, lambda _, by: done.append(by), sizes=TINY_SIZES)
    assert sum(done) == pytest.approx(work(TINY))


@pytest.mark.slow
def test_the_compiled_half(capfd: pytest.CaptureFixture[str]) -> None:
    found = run(replace(TINY, rows=(2,), dtypes=("float32",), not_compiled=None), silent, sizes=TINY_SIZES)
    assert found.gaps == []
    compiled = [figure.subject for figure in found.figures if figure.mode == COMPILED]
    assert compiled == [PLAIN, PLAIN_BFLOAT16, *TORCHAO, *NAMES]
    assert [step.subject for step in found.steps if step.mode == COMPILED] == list(WRAPPINGS)
    assert capfd.readouterr() == ("", "")


def test_json_holds_all_figures(results: Results) -> None:
    data = json.loads(json.dumps(COMMAND.data(results)))
    assert (data["schema"], data["bench"]) == (1, "int8")
    assert len(data["figures"]) == len(results.figures) + len(results.steps)
    assert len({each["name"] for each in data["figures"]}) == len(data["figures"])
    one = data["figures"][0]
    assert one["problem"] == {"outputs": 48, "inputs": 64, "dtype": "float32", "rows": 1}
    assert set(one) == {
        *("name", "problem", "subject", "mode", "time_ns", "speedup", "decibels", "weight_bytes", "rounds_ns"),
    }
    assert set(data["budgets"][0]) == {"text", "measured", "at_most", "at_least", "met"}
    assert data["settings"]["clock"] == "perf_counter_ns"
    assert data["subjects"][TORCHAO_DYNAMIC].startswith("torchao ")
    assert rebuilt(data).to_json() == results.to_json()


def rebuilt(data: dict) -> Results:
    """The results that JSON data stand for."""

    def summary_of(part: dict | None) -> Summary | None:
        return part and Summary(**{**part, "interval": tuple(part["interval"])})

    figures = [
        Figure(
            Problem(**each["problem"]),
            each["subject"],
            each["mode"],
            summary_of(each["time_ns"]),
            summary_of(each["speedup"]),
            each["decibels"] and Decibels(**each["decibels"]),
            each["weight_bytes"],
            tuple(each["rounds_ns"]),
        )
        for each in data["figures"]
        if "problem" in each
    ]
    steps = [
        StepFigure(
            **{
                **{key: value for key, value in each.items() if key != "name"},
                "time_ns": summary_of(each["time_ns"]),
                "speedup": summary_of(each["speedup"]),
                "losses": tuple(each["losses"]),
                "rounds_ns": tuple(each["rounds_ns"]),
            }
        )
        for each in data["figures"]
        if "problem" not in each
    ]
    return Results(
        data["machine"],
        BRIEF,
        data["not_compiled"],
        subjects=data["subjects"],
        figures=figures,
        modes=tuple(data["modes"]),
        steps=steps,
    )


def test_tables_hold_every_figure(results: Results) -> None:
    shown = tables(results)
    assert [table.title.partition(" (")[0] for table in shown] == [
        "linear, float32 48x64",
        "linear, bfloat16 48x64",
        "training step: MLP 1024-2048-1024, batch 128, SGD",
    ]
    assert all(len(row) == len(table.heads) for table in shown for row in table.rows)
    names = [PLAIN, PLAIN_BFLOAT16, *TORCHAO, *FLOORS, *NAMES]
    assert [row[0].strip() for row in shown[0].rows] == ["M = 1", *names, "M = 5", *names]


def test_results_print_with_versions_and_the_reason_for_no_compilation(
    results: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    COMMAND.show(replace(results, gaps=[Gap("p", "s", 1, COMPILED, "why")]))
    shown = capsys.readouterr().out
    assert "torchao 0." in shown
    assert "eager only, nothing was compiled: a test." in shown
    assert "- s, compiled: p: why" in shown


def test_the_plot_is_a_png(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "int8.png"
    COMMAND.draw(results, path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_without_torchao_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    found = run(replace(TINY, rows=(1,), dtypes=("float32",), step=False), silent)
    assert [absence.subject for absence in found.absences] == TORCHAO
    assert all("not available here" in absence.reason for absence in found.absences)
    assert {figure.subject for figure in found.figures} == {PLAIN, PLAIN_BFLOAT16, *FLOORS, *NAMES}
    unmeasured = [budget for budget in budgets(found) if budget.text.endswith((TORCHAO_WEIGHT_ONLY, TORCHAO_DYNAMIC))]
    assert [budget.met for budget in unmeasured] == [None, None]


# Budgets


def summary(value: float) -> Summary:
    return Summary(value, value, value, (value, value))


SQUARE = Problem(2048, 2048, "float32", 1)
PLAIN_NS = 1000.0


def planted(subject: str, nanoseconds: float, mode: str = EAGER, found: float = 90.0, nbytes: int = 1) -> Figure:
    """A figure of the square product at one row, whose plain time is 1000 ns."""
    times = (nanoseconds,) * 3
    accuracy = Decibels(found, found)
    return Figure(SQUARE, subject, mode, summary(nanoseconds), summary(PLAIN_NS / nanoseconds), accuracy, nbytes, times)


def judged(
    *figures: Figure, steps: tuple[StepFigure, ...] = (), modes: tuple[str, ...] = (EAGER,)
) -> dict[str, Budget]:
    results = Results(describe_machine(), BRIEF, modes=modes, figures=list(figures), steps=list(steps))
    return {budget.text: budget for budget in budgets(results)}


@pytest.mark.parametrize(("nanoseconds", "met"), [(350.0, True), (360.0, False)])
def test_the_packed_weight_has_to_be_faster_than_plain(nanoseconds: float, met: bool) -> None:
    found = judged(planted(ours("int16", packed=True), nanoseconds))
    budget = found["float32 2048x2048 M=1, eager: lamina int16 packed, times as fast as plain"]
    assert (budget.at_least, budget.met) == (2.8, met)
    assert budget.measured == summary(PLAIN_NS / nanoseconds)
    assert found["float32 2048x2048 M=1, eager: lamina int8 packed, times as fast as plain"].met is None


@pytest.mark.parametrize(("nanoseconds", "met"), [(99.0, True), (101.0, False)])
def test_torchao_is_judged_by_the_better_of_its_modes(nanoseconds: float, met: bool) -> None:
    found = judged(
        planted(TORCHAO_WEIGHT_ONLY, 500.0),
        planted(TORCHAO_WEIGHT_ONLY, 100.0, COMPILED),
        planted(ours("float"), 700.0),
        planted(ours("int16"), nanoseconds),
        planted(ours("int8"), 1.0),
        modes=(EAGER, COMPILED),
    )
    budget = found["float32 2048x2048 M=1, eager: lamina int16 / torchao weight-only compiled"]
    assert budget.measured is not None
    assert budget.measured.median == pytest.approx(nanoseconds / 100)
    assert budget.met is met
    assert found["float32 2048x2048 M=1, compiled: lamina / torchao weight-only compiled"].met is None


@pytest.mark.parametrize(("nanoseconds", "met"), [(104.0, True), (106.0, False)])
def test_auto_is_judged_by_the_best_of_its_three(nanoseconds: float, met: bool) -> None:
    three = [planted(ours(name), cost) for name, cost in (("float", 300.0), ("int16", 200.0), ("int8", 100.0))]
    found = judged(*three, planted(ours("auto"), nanoseconds), planted(ours("int8", packed=True), 1.0))
    assert found["float32 2048x2048 M=1, eager: lamina auto / lamina int8"].met is met
    assert found["float32 2048x2048 M=1, eager: lamina auto packed / lamina int8 packed"].met is None


@pytest.mark.parametrize(("worst", "met"), [(85.5, True), (84.5, False)])
def test_the_worst_accuracy_counts(worst: float, met: bool) -> None:
    found = judged(
        planted(ours("int16"), 1.0, found=95.0),
        planted(ours("int16", packed=True), 1.0, found=worst),
        planted(ours("int8"), 1.0, found=39.0),
    )
    assert found["float32, lamina int16: worst decibels against the dequantized weight"].met is met
    assert found["float32, lamina int8: worst decibels against the dequantized weight"].met is True


@pytest.mark.parametrize(("packed", "share", "met"), [(False, 0.26, True), (False, 0.28, False), (True, 0.56, False)])
def test_bytes_are_judged_against_those_of_fp32(packed: bool, share: float, met: bool) -> None:
    subject = ours("int16", packed=packed)
    found = judged(planted(subject, 1.0, nbytes=round(share * SQUARE.float_bytes)))
    assert found[f"float32 2048x2048: {subject}, bytes of the weight / of fp32"].met is met


@pytest.mark.parametrize(
    ("mode", "speedup", "met"), [(EAGER, 1.19, False), (EAGER, 1.21, True), (COMPILED, 1.01, True)]
)
def test_the_training_step_has_its_budgets(mode: str, speedup: float, met: bool) -> None:
    step = StepFigure(INT16, mode, summary(1.0), summary(speedup), (1.0, 0.5), 1, (1.0,))
    found = judged(steps=(step,), modes=(EAGER, COMPILED))
    assert found[f"training step, {mode}: lamina int16, times as fast as fp32"].met is met
    other = COMPILED if mode == EAGER else EAGER
    assert found[f"training step, {other}: lamina int16, times as fast as fp32"].met is None


def test_bfloat16_is_judged_for_auto_alone() -> None:
    figures = [replace(planted(ours("auto"), 1.0), problem=replace(SQUARE, dtype="bfloat16"))]
    assert {text.partition(": ")[2].partition(" /")[0] for text in judged(*figures)} == {
        "lamina auto",
        "lamina auto packed",
    }


@pytest.mark.parametrize("bounds", [{}, {"at_most": 1.0, "at_least": 1.0}])
def test_a_budget_has_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs one of at_most and at_least"):
        Budget("b", None, **bounds)


# The command line


def test_the_whole_by_default() -> None:
    chosen = chosen_options(parser().parse_args([]))
    assert (chosen.shapes, chosen.rows, chosen.dtypes) == (SHAPES, ROWS, ("float32", "bfloat16"))
    assert chosen.step
    assert chosen.modes == (EAGER, COMPILED)


def test_filters_and_parts() -> None:
    chosen = chosen_options(
        parser().parse_args("--shape 3x4 --shape 5x6 -m 7 --rows 7 --dtype bfloat16 --eager --table".split())
    )
    assert (chosen.shapes, chosen.rows, chosen.dtypes) == (((3, 4), (5, 6)), (7,), ("bfloat16",))
    assert (chosen.step, chosen.modes) == (False, (EAGER,))
    assert chosen_options(parser().parse_args(["--step"])).layers() == []
    assert chosen_options(parser().parse_args(["--quick", "-m", "3"])).rows == (3,)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--shape 3", "'3' is no shape; write outputs x inputs, as in 2048x2048"),
        ("--shape 0x3", "'0x3' is no shape"),
        ("-m 0", "'0' is no number of them"),
        ("--dtype int8", "invalid choice: 'int8'"),
        ("--step --table", "not allowed with argument"),
    ],
)
def test_bad_arguments(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments.split())
    assert text in capsys.readouterr().err


def test_without_a_compiler_the_eager_half_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "missing_compiler", lambda: "no g++.")
    chosen = chosen_options(parser().parse_args([]))
    assert (chosen.modes, chosen.not_compiled) == ((EAGER,), "no g++.")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("--plot {0}/no/t.png", "there is no folder"), ("--plot {0}/t.png --step", "which --step leaves out")],
)
def test_a_plot_that_cannot_be_is_refused_first(
    arguments: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "add_layer", lambda *_: pytest.fail("measured"))
    try:
        status = COMMAND.main(arguments.format(tmp_path).split())
    except SystemExit as error:
        status = error.code
    assert status == 2
    assert text in capsys.readouterr().err


def test_the_command_prints_json_alone_on_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.bench.int8.options.STEADY", BRIEF)
    plot = tmp_path / "t.png"
    arguments = f"bench int8 --shape 48x64 -m 1 --dtype float32 --eager --table --quick --cpu-time --json --plot {plot}"
    result = CliRunner().invoke(lamina.commands.app, arguments.split())
    assert result.exit_code == 0
    assert json.loads(result.stdout)["settings"]["clock"] == "thread_time_ns"
    assert plot.exists()


def test_what_is_too_noisy_is_a_gap_and_nothing_is_drawn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "t.png"
    noisy = replace(BRIEF, refuse_above=-1.0)
    monkeypatch.setattr("lamina.bench.int8.options.STEADY", noisy)
    arguments = f"--shape 48x64 -m 1 --dtype float32 --eager --table --json --plot {plot}"
    assert COMMAND.main(arguments.split()) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["figures"], plot.exists()) == ([], False)
    assert f"--plot {plot}: nothing to draw" in shown.err
    reasons = {gap["subject"]: gap["reason"] for gap in found["gaps"]}
    assert "the time of plain | eager is too noisy" in reasons["plain"]


def test_without_rich_progress_is_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lamina.bench.progress.find_spec", lambda _: None)
    COMMAND.measured(replace(TINY, rows=(1,), dtypes=("float32",), step=False))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "float32 48x64 M=1: plain | eager\n" in shown.err


def test_the_command_has_its_help() -> None:
    shown = CliRunner().invoke(lamina.commands.app, ["bench", "int8", "--help"])
    assert shown.exit_code == 0
    assert "--step" in shown.stdout


def test_a_peer_that_would_crash_the_process_is_a_gap() -> None:
    problem = Problem(16, 1003, "bfloat16", 4)
    activations = torch.randn(4, 1003, dtype=torch.bfloat16)
    trial = Trial(Built(named(TORCHAO_WEIGHT_ONLY), problem.layer), problem, COMPILED)
    gap = trial.prepare(activations, References(activations))
    assert isinstance(gap, Gap)
    assert "crashes" in gap.reason
    for other in (replace(problem, rows=1), replace(problem, dtype="float32"), replace(problem, inputs=1024)):
        assert peers.known_crash(TORCHAO_WEIGHT_ONLY, other, COMPILED) is None
    assert peers.known_crash(TORCHAO_WEIGHT_ONLY, problem, EAGER) is None
