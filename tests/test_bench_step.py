"""The bench of training steps: what each trial runs, what is refused, how parts and slopes are formed. No time is
judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from torch import Tensor, nn

import lamina
from lamina.bench.command import INTERRUPTED
from lamina.bench.compiler import compiling, traced_backward
from lamina.bench.ours import LOGGING
from lamina.bench.peers import HAND_WRITTEN
from lamina.bench.progress import silent
from lamina.bench.step import measuring
from lamina.bench.step.budgets import budgets
from lamina.bench.step.command import COMMAND
from lamina.bench.step.compiled import guards_variant, reassembly
from lamina.bench.step.conditions import (
    ALL_MODELS,
    ALL_OPTIMIZERS,
    EAGER,
    FULL,
    MODEL,
    MODES,
    OPTIMIZER,
    WHOLE,
    Group,
    Matrix,
    everything,
    selected,
)
from lamina.bench.step.growth import add_slopes, compile_slope, lines
from lamina.bench.step.measuring import INT8, load_subjects, prepared, run, trials_of, work
from lamina.bench.step.memory import overhead, peak_bytes
from lamina.bench.step.models import LARGE, MLP, SMALL, Trunked, make_task
from lamina.bench.step.optimizers import SGD
from lamina.bench.step.options import Options, chosen_options, parser
from lamina.bench.step.peers import NAIVE, ByHand, Naive
from lamina.bench.step.plot import PART_COLORS, growing, picture
from lamina.bench.step.report import tables
from lamina.bench.step.results import Figure, Results, Split
from lamina.bench.step.split import ACCUMULATE, BOTH, DETACH, FLATTEN, FORWARD, GUARDS, HOOKS, PARTS, REST, SplitTrial
from lamina.bench.step.trial import CHECKED_STEPS, StepTrial, wrap_trunk, wrapped_weights
from lamina.bench.subjects import PLAIN, Subject
from lamina.bench.timing import Measurement, Settings, Summary
from lamina.bench.trials import LACKING, NOISY, WRONG, Gap

BRIEF = Settings(rounds=2, fewest=2, loop_ns=1, warmup_ns=1, seconds=0, refuse_above=None)
FEW = 4
TINY = Options(Matrix((MLP,), (SGD,), (EAGER,), (FEW, 2 * FEW), 2), not_compiled="a test.", settings=BRIEF)
SUBJECTS = load_subjects()


def group(mode: str = EAGER, model: str = MLP, optimizer: str = SGD) -> Group:
    return Group(model, optimizer, mode, (FEW,), 2)


def trained(where: Group, subject: Subject, layers: int) -> StepTrial:
    """A checked trial beside its plain one."""
    plain = prepared(where, PLAIN, 0, FEW, None)
    assert not isinstance(plain, Gap), plain
    found = prepared(where, subject, layers, FEW, plain[0].losses)
    assert not isinstance(found, Gap), found
    return found[0]


def logged(parameters: int = FEW, layers: int = 1) -> Trunked:
    model = make_task(MLP, parameters).model
    wrap_trunk(model, SUBJECTS[LOGGING], layers)
    return model


@pytest.fixture(autouse=True)
def compiled_code_is_dropped() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.fixture(scope="module")
def found() -> Results:
    return run(TINY, silent)


# Models and wrappings


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("weights", [4, 8])
def test_models_have_as_many_weights_to_wrap_as_asked_for(model: str, weights: int) -> None:
    task = make_task(model, weights)
    assert len(list(task.model.trunk.parameters())) == weights
    loss = task.loss(task.model(task.batch[0]), task.batch[1])
    loss.backward()
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in task.model.trunk.parameters())


def test_models_are_the_same_at_every_call_and_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = make_task("GPT", 4), make_task("GPT", 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def test_a_number_of_weights_that_a_model_cannot_have_is_a_gap() -> None:
    gap = prepared(replace(group(model="GPT"), parameters=(6,)), PLAIN, 0, 6, None)
    assert isinstance(gap, Gap)
    assert "a block of the GPT has 4 weights: 6 is no multiple of that" in gap.reason


@pytest.mark.parametrize(("name", "layers"), [(LOGGING, 1), (LOGGING, 3), (INT8, 1), (NAIVE, 2), (HAND_WRITTEN, 1)])
def test_the_weights_of_the_trunk_are_wrapped_and_no_others(name: str, layers: int) -> None:
    model = make_task("GPT", FEW).model
    wrap_trunk(model, SUBJECTS[name], layers)
    assert wrapped_weights(model, SUBJECTS[name], layers) == FEW
    assert wrapped_weights(model, SUBJECTS[name], layers + 1) == 0
    others = [weight for part, weight in model.named_parameters() if not part.startswith("trunk.")]
    assert others
    assert {type(weight.data) for weight in others} == {Tensor}


def test_peers_stay_wrapped_and_run_on_the_inner_tensors() -> None:
    for cls in (Naive, ByHand):
        outer = cls(torch.arange(6.0).view(2, 3))
        made = torch.mm(outer, outer.t())
        assert type(made) is cls
        assert torch.equal(made.elem, torch.tensor([[5.0, 14.0], [14.0, 50.0]]))
        detached = outer.detach()
        assert type(detached) is cls
        assert detached.untyped_storage()._cdata == outer.untyped_storage()._cdata
        names, context = outer.__tensor_flatten__()
        again = cls.__tensor_unflatten__({name: getattr(outer, name) for name in names}, context, (2, 3), (3, 1))
        assert again.elem is outer.elem


# Trials


@pytest.mark.parametrize(("name", "layers"), [(LOGGING, 1), (LOGGING, 2), (INT8, 1), (NAIVE, 1), (HAND_WRITTEN, 1)])
@pytest.mark.parametrize("model", ALL_MODELS)
def test_eager_steps_pass_the_check(model: str, name: str, layers: int) -> None:
    trial = trained(group(model=model), SUBJECTS[name], layers)
    assert len(trial.losses) == CHECKED_STEPS
    assert trial.backend.graphs == 0


@pytest.mark.parametrize("optimizer", ALL_OPTIMIZERS)
@pytest.mark.parametrize(("name", "layers"), [(LOGGING, 2), (INT8, 1)])
def test_optimizers_train_wrapped_weights(optimizer: str, name: str, layers: int) -> None:
    trial = trained(group(optimizer=optimizer), SUBJECTS[name], layers)
    assert wrapped_weights(trial.model, trial.subject, layers) == FEW
    defaults = trial.step.optimizer.defaults  # type: ignore[union-attr]
    ways = {"AdamW single": (False, None), "AdamW foreach": (True, None), "AdamW fused": (None, True)}
    assert (defaults["foreach"], defaults["fused"]) == ways.get(optimizer, (None, None))


def test_steps_with_another_loss_than_plain_are_refused() -> None:
    doubled = Subject("doubled", "test", lambda values: lamina.LoggingTensor(values * 2), lambda outer: outer.elem)
    plain = prepared(group(), PLAIN, 0, FEW, None)
    assert not isinstance(plain, Gap)
    gap = prepared(group(), doubled, 1, FEW, plain[0].losses)
    assert isinstance(gap, Gap)
    assert gap.kind == WRONG
    assert "plain torch gives" in gap.reason


def test_a_step_that_does_not_train_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.SGD, "step", lambda *_: None)
    gap = prepared(group(), PLAIN, 0, FEW, None)
    assert isinstance(gap, Gap)
    assert gap.kind == WRONG
    assert "the loss went from" in gap.reason


def test_a_class_that_lacks_an_op_is_a_gap_with_its_reason() -> None:
    class Lacking(Naive):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.tanh_backward.default:
                raise NotImplementedError("no tanh_backward here")
            return super().__torch_dispatch__(func, types, args, kwargs)

    gap = prepared(group(), Subject("lacking", "test", Lacking, lambda outer: outer.elem), 1, FEW, None)
    assert isinstance(gap, Gap)
    assert (gap.op, gap.kind) == ("MLP, 4 parameters, SGD", LACKING)
    assert gap.reason == "NotImplementedError: no tanh_backward here"


def test_weights_that_lose_their_layers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.bench.step.trial.wrapped_weights", lambda *_: FEW - 1)
    gap = prepared(group(), SUBJECTS[LOGGING], 1, FEW, None)
    assert isinstance(gap, Gap)
    assert "wrong way: 3 weights are wrapped, not 4" in gap.reason


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "graphs"), [(MODEL, 1), (OPTIMIZER, 2), (WHOLE, 2)])
def test_compiled_steps_are_compiled_and_equal_plain_ones(mode: str, graphs: int) -> None:
    with compiling(), traced_backward():
        trial = trained(group(mode), SUBJECTS[LOGGING], 2)
        assert trial.compilation.graphs == trial.backend.graphs == graphs
        assert trial.compilation.recompiled == 0
        assert trial.compilation.compile_ns > 0
        step, guards = trial.variants()
        assert trial.backend.graphs == graphs
        assert guards.function(*guards.args) is True
        step.function(*step.args)
        given = {**guards.args[0], "inputs": torch.zeros(1, 3)}
        assert guards.function(given) is False


@pytest.mark.slow
def test_what_is_not_compiled_is_refused() -> None:
    with compiling():
        gap = prepared(group(OPTIMIZER, optimizer="AdamW fused"), PLAIN, 0, FEW, None)
    assert isinstance(gap, Gap)
    assert gap.reason.endswith("wrong way: 1 graphs were compiled, compiled model and optimizer has 2")


# Parts


def test_guards_of_what_was_not_compiled_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="was not compiled for these arguments"):
        guards_variant("guards", lambda inputs: inputs, {"inputs": torch.ones(2)})


def test_guards_find_the_entry_of_the_arguments_among_others_of_the_same_code() -> None:
    def make(weight: Tensor) -> Callable[[Tensor], Tensor]:
        def scaled(inputs: Tensor) -> Tensor:
            return inputs * weight

        return scaled

    first, second = make(torch.ones(2)), make(torch.ones(2, dtype=torch.float64))
    for function in (first, second):
        torch.compile(function, backend="eager")(torch.ones(2))
    for function in (first, second):
        guards = guards_variant("guards", function, {"inputs": torch.ones(2)})
        assert guards.function(*guards.args) is True
        assert guards.args[0]["weight"] is function.__closure__[0].cell_contents  # type: ignore[index]


def test_reassembly_takes_tensors_apart_and_puts_them_together() -> None:
    tensors = [lamina.LoggingTensor(lamina.LoggingTensor(torch.ones(2, 3))), torch.ones(4)]
    wrapped, plain = reassembly(tensors)()  # type: ignore[misc]
    assert type(wrapped) is lamina.LoggingTensor
    assert wrapped is not tensors[0]
    assert wrapped.elem.elem is tensors[0].elem.elem
    assert plain is tensors[1]


def split_trials() -> tuple[SplitTrial, SplitTrial]:
    return tuple(  # type: ignore[return-value]
        SplitTrial(StepTrial(group(), SUBJECTS[name], layers, FEW)) for name, layers in ((PLAIN.name, 0), (LOGGING, 2))
    )


def test_parts_of_a_split_are_differences_to_plain_by_parameter_and_layer() -> None:
    plain, wrapped = split_trials()
    times = {FORWARD: 800, BOTH: 8000, GUARDS: 80, FLATTEN: 160, HOOKS: 240, DETACH: 320, "gradients, not stored": 4800}
    rounds = {wrapped._name(part): [100.0 + time, 200.0 + time] for part, time in times.items()}
    rounds |= {plain._name(part): [100.0, 200.0] for part in times}
    split = wrapped.split(plain, Measurement(rounds))
    medians = {part: summary.median for part, summary in split.parts_ns.items()}
    assert list(medians) == list(PARTS)
    by_eight = {part: time / 8 for part, time in times.items() if part in PARTS}
    assert medians == {**by_eight, ACCUMULATE: 3200 / 8, REST: (4800 - 80 - 160 - 240) / 8}


@pytest.mark.slow
def test_a_split_of_a_compiled_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "PARAMETERS", FEW)
    options = replace(TINY, matrix=replace(TINY.matrix, modes=(MODEL,), parameters=(FEW,), layers=1), large=False)
    results = run(replace(options, not_compiled=None, split_layers=(1, 2)), silent)
    assert results.gaps == []
    names = [(each.subject, each.layers) for each in results.splits]
    assert names == [(LOGGING, 1), (LOGGING, 2), (NAIVE, 1), (HAND_WRITTEN, 1)]
    assert all(figure.guards_ns and figure.guards_ns.median > 0 for figure in results.figures)
    assert {figure.graphs for figure in results.figures} == {1}
    assert all(set(each.parts_ns) == set(PARTS) for each in results.splits)


@pytest.mark.slow
def test_the_parts_of_a_split_do_what_they_are_named_for() -> None:
    with compiling():
        trial = SplitTrial(trained(group(MODEL), SUBJECTS[LOGGING], 1))
        variants = {each.name.rpartition(" | ")[2]: each for each in trial.variants()}
        gradients = variants["gradients, not stored"].function()
        assert [type(each) for each in gradients] == [lamina.LoggingTensor] * FEW  # type: ignore[attr-defined]
        variants[BOTH].function()
        assert [weight.grad for weight in trial.weights] == [None] * FEW
        with torch.no_grad():
            assert len(variants[DETACH].function()) == FEW  # type: ignore[arg-type]
        calls: list[object] = []
        for weight in trial.weights:
            weight.register_hook(calls.append)
        again = {each.name.rpartition(" | ")[2]: each for each in trial.variants()}
        calls.clear()
        again[HOOKS].function()
        assert len(calls) == FEW


# Memory


def test_the_peak_is_the_most_that_is_alive_at_once() -> None:
    def step() -> None:
        first = torch.empty(1000, dtype=torch.uint8)
        del first
        second, third = torch.empty(3000, dtype=torch.uint8), torch.empty(500, dtype=torch.uint8)
        del second, third

    assert peak_bytes(step) == 3500


def test_memory_of_a_wrapper_is_counted_by_parameter_and_layer() -> None:
    one, two = (overhead(SUBJECTS[LOGGING], layers) for layers in (1, 2))
    assert 200 < one.python < 2000
    assert two.python == pytest.approx(one.python, rel=0.3)
    heavy = Subject("heavy", "test", lambda values: lamina.LoggingTensor(values.clone().repeat(8, 8)), max_layers=1)
    if one.native is not None:
        heavy_native = overhead(heavy).native
        assert heavy_native is not None
        assert heavy_native - one.native == pytest.approx(63 * 8 * 8 * 4, rel=0.05)


# Growth, budgets, report


def figure(parameters: int, layers: int, time: float, mode: str = MODEL, width: int = SMALL.width) -> Figure:
    rounds = (time, time + 2)
    summary = Summary.of(rounds)
    subject = LOGGING if layers else PLAIN.name
    to_plain = Summary.of([1.01 if width == LARGE.width else 2.0]) if layers else None
    name = f"{parameters} x{layers}"
    return Figure(
        name, MLP, SGD, mode, parameters, subject, layers, width, 8, summary, to_plain, None, None,
        parameters * 10**9, 1, 0, 0, (2.0, 1.0), rounds,
    )  # fmt: skip


def test_slopes_are_lines_through_rounds() -> None:
    grown = [figure(count, layers, 100.0 * count + 30 * count * layers) for count in (8, 64) for layers in (0, 1, 2)]
    results = Results({}, BRIEF)
    add_slopes(results, grown, Measurement({}))
    by_name = {each.name: each for each in results.slopes}
    along = by_name[f"MLP | SGD | {MODEL} | 64 parameters | {LOGGING} | slope along layers"]
    assert (along.time_ns.median, along.points, along.straight) == (pytest.approx(30), (0, 1, 2), pytest.approx(1))
    assert by_name[f"MLP | SGD | {MODEL} | {LOGGING} x2 | slope along parameters"].time_ns.median == pytest.approx(160)
    assert len(by_name) == 2 + 3
    compiled = {line.name: compile_slope(line) for line in lines(grown)}
    assert compiled[f"MLP | SGD | {MODEL} | {LOGGING} x1"] == pytest.approx(1)
    assert compiled[f"MLP | SGD | {MODEL} | 64 parameters | {LOGGING}"] == pytest.approx(0)
    assert {compile_slope(line) for line in lines([replace(each, compile_ns=0) for each in grown])} == {None}


def test_a_slope_that_is_too_noisy_is_a_gap() -> None:
    grown = [figure(8, layers, 100.0 + layers) for layers in (0, 1, 2)]
    noisy = [replace(each, rounds_ns=(100.0 + each.layers, 100.0 + 50 * each.layers)) for each in grown]
    results = Results({}, BRIEF)
    add_slopes(results, noisy, Measurement({}, refuse_above=0.25))
    assert results.slopes == []
    (gap,) = results.gaps
    assert (gap.subject, gap.kind) == (LOGGING, NOISY)
    assert gap.op == "MLP, 8 parameters, SGD, slope along layers"
    assert "is too noisy" in gap.reason


def results_with(*figures: Figure) -> Results:
    parts = {part: Summary.of([1500.0]) for part in PARTS}
    splits = [Split("split", LOGGING, 1, 64, parts), Split("split 2", LOGGING, 2, 64, parts)]
    results = Results({}, BRIEF, figures=list(figures), splits=splits)
    results.note([*SUBJECTS.values()])
    return results


def test_budgets_are_of_the_split_and_of_the_large_step() -> None:
    found = list(budgets(results_with(figure(4, 1, 1.0), figure(4, 1, 1.0, width=LARGE.width))))
    assert [each.met for each in found] == [False, False, True, True, True]
    assert [each.measured and each.measured.median for each in found] == [1.5] * 4 + [1.01]
    assert [each.met for each in budgets(Results({}, BRIEF))] == [None] * 3


def test_each_compiled_step_is_compiled_for_the_cache_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the compile time of none holds a C++ compiler's; and no reset drops the code of those that are timed."""
    done: list[str] = []

    def counted(group: Group, subject: Subject, layers: int, parameters: int, _: Any) -> Gap:
        done.append(f"{parameters} {subject.name} x{layers}")
        return group.gap(parameters, subject.name, layers, "a test", LACKING)

    monkeypatch.setattr(measuring, "prepared", counted)
    monkeypatch.setattr(torch.compiler, "reset", lambda: done.append("reset"))
    matrix = replace(TINY.matrix, modes=(MODEL,))
    options = replace(TINY, matrix=matrix, not_compiled=None, large=False, split_layers=())
    seconds: list[float] = []
    found = run(options, lambda _, by: seconds.append(by))
    (asked,) = options.groups()
    names = [
        f"{count} {each.name} x{layers}"
        for count in asked.parameters
        for each, layers in trials_of(asked, count, SUBJECTS)
    ]
    after_the_splits, *of_the_group = done
    assert after_the_splits == "reset"
    assert of_the_group == [each for name in names for each in (name, "reset")] + [*names, "reset"]
    assert len(found.gaps) == len(names)
    assert sum(seconds) == pytest.approx(work(options), abs=0.01)  # the rounds of those that passed: of none here


def test_a_wrapping_has_one_color_in_all_panels_whichever_figures_are_missing() -> None:
    figures = [figure(count, layers, 1.0, mode) for mode in (EAGER, MODEL) for count in (8, 64) for layers in range(3)]
    missing = {f"{count} x{layers}" for count, layers in ((8, 0), (8, 1), (64, 1))}
    kept = [each for each in figures if each.mode == MODEL or each.name not in missing]
    drawn = results_with(*kept)
    colors: dict[str, set[str]] = {}
    for panel in picture(drawn).axes:
        for line in panel.containers:
            if isinstance(line, ErrorbarContainer) and panel.get_xlabel() == "wrapped parameters":
                colors.setdefault(line.get_label(), set()).add(to_hex(line.lines[0].get_color()))
        for curve in panel.get_lines():
            if not curve.get_label().startswith("_"):
                colors.setdefault(curve.get_label(), set()).add(to_hex(curve.get_color()))
    wrappings = ["plain", f"{LOGGING} x1", f"{LOGGING} x2"]
    assert all(len(colors[each]) == 1 for each in wrappings)
    assert len(set.union(*(colors[each] for each in wrappings))) == 3


def test_the_picture_takes_the_split_apart(found: Results) -> None:
    panel = picture(replace(found, splits=results_with().splits)).axes[-1]
    assert [each.get_text() for each in panel.get_yticklabels()] == [f"{LOGGING} x1", f"{LOGGING} x2"]
    assert [each.get_width() for each in panel.patches] == [1.5] * 2 * len(PART_COLORS)


def test_a_run_has_a_figure_for_each_trial(found: Results) -> None:
    assert found.gaps == []
    assert len(found.figures) == 2 * len(trials_of(TINY.groups()[0], FEW, SUBJECTS)) == 8
    names = [each.name for each in found.figures]
    assert len(set(names)) == len(names)
    assert names[1] == f"MLP | SGD | eager | 4 parameters | {LOGGING} x1"
    assert all(len(each.rounds_ns) == 2 and each.time_ns.median > 0 for each in found.figures)
    assert all((each.to_plain is None) == (each.layers == 0) for each in found.figures)
    assert {each.along for each in found.slopes} == {"layers", "parameters"}
    assert [each.subject for each in found.overheads] == [LOGGING, INT8, NAIVE, HAND_WRITTEN]


def test_what_a_run_found_is_printed_and_drawn(
    found: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    COMMAND.show(replace(found, gaps=[Gap("op", "subject", 1, EAGER, "a reason")]))
    printed = capsys.readouterr().out
    assert "MLP, SGD, eager" in printed
    assert "a reason" in printed
    assert "eager only, nothing was compiled: a test." in printed
    data = json.loads(json.dumps(COMMAND.data(found)))
    assert (data["schema"], data["bench"], len(data["figures"])) == (1, "step", 8)
    assert {"name", "time_ns", "rounds_ns"} <= set(data["figures"][0])
    assert len(data["budgets"]) == 3
    COMMAND.draw(found, tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    compiled = [figure(count, layers, 100.0 * count) for count in (8, 64) for layers in (0, 1)]
    drawn = results_with(*compiled, *(figure(count, 1, 1.0, width=LARGE.width) for count in (4, 8)))
    assert [len(group) for group in growing(drawn)] == [4]
    COMMAND.draw(drawn, tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text().startswith("<?xml")
    titles = [table.title for table in tables(drawn)]
    assert titles[:2] == [f"MLP, SGD, {MODEL}", f"MLP 1024, batch 8, SGD, {MODEL}"]
    assert "growth of compile time" in titles


# What is measured


def test_progress_adds_up_to_the_seconds_that_were_announced() -> None:
    seconds: list[float] = []
    run(TINY, lambda _, by: seconds.append(by))
    assert sum(seconds) == pytest.approx(work(TINY))
    assert work(replace(TINY, not_compiled=None, matrix=FULL)) > work(replace(TINY, matrix=FULL)) > work(TINY)


def test_all_combinations_are_measured_only_if_asked_for() -> None:
    groups = list(everything(FULL))
    assert len(groups) == len(ALL_MODELS) * len(ALL_OPTIMIZERS) * len(MODES)
    assert {each.layers_at(512) for each in groups} == {4}
    chosen = list(selected(FULL))
    assert len({each.name for each in chosen}) == len(chosen) < len(groups)
    assert {each.mode for each in chosen} == set(MODES)
    assert {each.model for each in chosen} == set(ALL_MODELS)
    assert {each.optimizer for each in chosen} == set(ALL_OPTIMIZERS)
    deep = next(each for each in chosen if each.mode == MODEL and 512 in each.parameters)
    assert (deep.layers_at(64), deep.layers_at(512)) == (4, 1)
    assert (deep.quantized_at(64), deep.quantized_at(512)) == (True, False)


def test_the_command_line_narrows_what_is_measured() -> None:
    chosen = parser().parse_args(
        ["--model", "gpt", "--optimizer", "adamw-single", "--mode", "eager", "--parameters", "8"]
    )
    options = chosen_options(chosen)
    (only,) = options.groups()
    assert (only.model, only.optimizer, only.mode, only.parameters) == ("GPT", "AdamW single", EAGER, (8,))
    assert options.splits() == ()
    full = chosen_options(parser().parse_args([]))
    assert any(each.size == LARGE for each in full.groups())
    assert full.splits() == (1, 2, 4)
    assert {each.mode for each in replace(full, not_compiled="no compiler").groups()} == {EAGER}
    with pytest.raises(SystemExit):
        parser().parse_args(["--parameters", "0"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = replace(COMMAND, options=lambda _: TINY).main
    assert main(["--plot", str(tmp_path / "missing" / "x.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["--json", "--plot", str(tmp_path / "x.png")]) == 0
    assert len(json.loads(capsys.readouterr().out)["figures"]) == 8
    assert (tmp_path / "x.png").exists()


def test_an_interrupt_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "overhead", interrupted)
    assert replace(COMMAND, options=lambda _: TINY).main(["--json"]) == INTERRUPTED
    data = json.loads(capsys.readouterr().out)
    assert data["stopped"].startswith("interrupted")
    assert len(data["figures"]) == 8


def test_the_loss_of_the_gpt_is_that_of_the_next_token() -> None:
    task = make_task("GPT", FEW)
    assert torch.equal(task.batch[0][:, 1:], task.batch[1][:, :-1])
    logits = task.model(task.batch[0])
    wanted = F.cross_entropy(logits.transpose(1, 2), task.batch[1])
    assert torch.allclose(task.loss(logits, task.batch[1]), wanted)
    assert isinstance(task.model.trunk, nn.Sequential)
