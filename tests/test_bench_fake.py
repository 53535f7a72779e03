"""`lamina bench fake`: that it computes what it times, and that its figures have the common shape."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lamina import FakeLikeTensor
from lamina.bench.fake import measuring
from lamina.bench.fake.budgets import budgets
from lamina.bench.fake.cases import OPERATOR, STEP, Case, cases
from lamina.bench.fake.command import COMMAND
from lamina.bench.fake.floor import NoFloorError, floor_of
from lamina.bench.fake.options import Options, chosen_options, parser
from lamina.bench.fake.report import tables
from lamina.bench.fake.results import Results
from lamina.bench.fake.subjects import FAKE_LIKE, FAKE_TENSOR, FLOOR, META, PLAIN, subjects
from lamina.bench.timing import Settings, Variant
from lamina.bench.trials import LACKING, WRONG
from lamina.modes import FakeLikeMode
from lamina.subclasses.fake_like.cache import Replays

SHORT = Settings(rounds=2, fewest=2, loop_ns=1, warmup_ns=1, seconds=0.1, refuse_above=None)


@pytest.fixture(scope="module")
def results() -> Results:
    return measuring.run(Options(SHORT))


def test_each_case_is_measured_for_each_subject(results: Results) -> None:
    assert results.gaps == []
    assert [figure.name for figure in results.figures] == [
        f"{case.name} | {subject}"
        for case in cases()
        for subject in (*case.subjects, *([FLOOR] if case.kind == STEP else []))
    ]
    assert {case.kind for case in cases()} == {OPERATOR, STEP}


def step_under(mode: Any, calls: Counter[str]) -> Variant:
    """Training steps of one layer by AdamW, which `calls` counts."""
    with mode:
        layer = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(layer.parameters(), foreach=False)
        inputs = torch.ones(4, 3)

    def step(given: torch.Tensor) -> torch.Tensor:
        loss = layer(given).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        calls["steps"] += 1
        return loss

    return Variant(FAKE_LIKE, step, (inputs,), lambda: mode)


def test_the_floor_of_a_step_makes_its_results_and_looks_nothing_up(cache: Replays) -> None:
    calls: Counter[str] = Counter()
    step = step_under(FakeLikeMode("cuda"), calls)
    with step.scope():
        step.function(*step.args)
        step.function(*step.args)
    floor = floor_of(step)
    before = cache.info()
    with floor.scope():
        results = [floor.function(*floor.args) for _ in range(3)]
    assert cache.info() == before
    assert calls["steps"] == 6
    for loss in results:
        assert (type(loss), loss.shape, loss.device.type) == (FakeLikeTensor, (), "cuda")
        assert loss.requires_grad


def test_a_step_that_makes_other_calls_has_no_floor(cache: Replays) -> None:
    asked: list[Any] = [torch.sin]
    with FakeLikeMode() as mode:
        x = torch.ones(3)

    def step(given: torch.Tensor) -> torch.Tensor:
        return asked[0](given)

    variant = Variant(FAKE_LIKE, step, (x,), lambda: mode)
    with pytest.raises(NoFloorError, match=r"nothing is known of this call of aten.sin.default"):
        floor_of(variant)
    with mode:
        torch.sin(x), torch.sin(x)
    floor = floor_of(variant)
    asked[0] = torch.cos
    with floor.scope(), pytest.raises(NoFloorError, match=r"calls aten.cos.default where .* called aten.sin.default"):
        floor.function(*floor.args)
    asked[0] = lambda given: given.sin().sin()
    with floor.scope(), pytest.raises(NoFloorError, match=r"calls aten.sin.default where the one before had ended"):
        floor.function(*floor.args)
    asked[0] = torch.numel
    with floor.scope(), pytest.raises(NoFloorError, match=r"ends where the one before called aten.sin.default"):
        floor.function(*floor.args)


def test_a_floor_that_gives_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return torch.sin, (torch.ones(3),)

    def other(step: Variant) -> Variant:
        return replace(step, name=FLOOR, function=torch.outer, args=(*step.args, *step.args))

    monkeypatch.setattr(measuring, "floor_of", other)
    monkeypatch.setattr(measuring, "cases", lambda: [Case(STEP, "sin", make, (FAKE_LIKE, PLAIN))])
    results = measuring.run(Options(SHORT))
    assert [(gap.subject, gap.kind) for gap in results.gaps] == [(FLOOR, WRONG)]


def test_a_step_without_a_floor_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return torch.sin, (torch.ones(3),)  # the cache is checked in tests: nothing is known

    monkeypatch.setattr(measuring, "cases", lambda: [Case(STEP, "sin", make, (FAKE_LIKE, PLAIN))])
    results = measuring.run(Options(SHORT))
    assert [(gap.subject, gap.kind) for gap in results.gaps] == [(FLOOR, LACKING)]
    assert {figure.subject for figure in results.figures} == {FAKE_LIKE, PLAIN}


def test_budgets(results: Results) -> None:
    found = {budget.text: budget for budget in budgets(results)}
    assert all(budget.measured is not None for budget in found.values())
    faster = found["training step, 16-layer MLP, SGD: lamina FakeLikeMode, times as fast as torch FakeTensorMode"]
    assert faster.at_least == 12.0
    alike = results.figure(STEP, "16-layer MLP, SGD", FAKE_LIKE)
    fake = results.figure(STEP, "16-layer MLP, SGD", FAKE_TENSOR)
    assert alike is not None
    assert fake is not None
    assert faster.measured is not None
    assert faster.measured.median > 1 or fake.time_ns.median < alike.time_ns.median
    assert all(budget.measured is None for budget in budgets(Results({}, SHORT)))


def test_json_has_the_common_shape(results: Results) -> None:
    data = json.loads(json.dumps(COMMAND.data(results)))
    assert (data["schema"], data["bench"]) == (1, "fake")
    assert {"machine", "figures", "budgets", "gaps"} <= data.keys()
    names = [figure["name"] for figure in data["figures"]]
    assert len(set(names)) == len(names)
    assert all(len(figure["rounds_ns"]) >= 2 for figure in data["figures"])
    assert [table.title for table in tables(results)] == ["one operator", "one training step"]


def test_a_subject_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = subjects()
    known[FAKE_LIKE] = replace(known[FAKE_LIKE], kind=torch.nn.Parameter)
    monkeypatch.setattr(measuring, "subjects", lambda: known)
    monkeypatch.setattr(measuring, "cases", lambda: cases()[:1])
    results = measuring.run(Options(SHORT))
    assert [(gap.subject, gap.kind) for gap in results.gaps] == [(FAKE_LIKE, "wrong")]
    assert FAKE_LIKE not in {figure.subject for figure in results.figures}


def test_a_subject_that_fails_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        if torch.empty(()).is_meta:
            raise RuntimeError("not on meta")
        return torch.add, (torch.ones(2), torch.ones(2))

    monkeypatch.setattr(measuring, "cases", lambda: [Case(OPERATOR, "add", make, (META, PLAIN))])
    results = measuring.run(Options(SHORT))
    assert [(gap.subject, gap.reason) for gap in results.gaps] == [(META, "RuntimeError: not on meta")]


def test_an_interrupt_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "cases", lambda: cases()[:2])
    told = 0

    def tell(*_: object) -> None:
        nonlocal told
        told += 1
        if told == 2:
            raise KeyboardInterrupt

    def run(options: Options, _: object, begun: Any) -> Results:
        return measuring.run(options, tell, begun)

    found = replace(COMMAND, run=run).measured(Options(SHORT))
    assert found.stopped
    assert {figure.what for figure in found.figures} == {"add"}


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    main = replace(COMMAND, options=lambda _: Options(SHORT)).main
    monkeypatch.setattr(measuring, "cases", lambda: cases()[:1])
    where = tmp_path / "fake.png"
    assert main(["--quick", "--plot", str(where)]) == 0
    assert "one operator" in capsys.readouterr().out
    assert where.read_bytes().startswith(b"\x89PNG")
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bench"] == "fake"
    assert main(["--plot", str(tmp_path / "nowhere" / "fake.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_options() -> None:
    quick = chosen_options(parser().parse_args(["--quick", "--cpu-time"])).settings
    assert quick.seconds < chosen_options(parser().parse_args([])).settings.seconds
    assert quick.clock.__name__ == "thread_time_ns"
