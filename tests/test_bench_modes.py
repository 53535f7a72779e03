"""`lamina bench modes`, in a few rounds: figures for all modes, and each mode entered. No time is judged."""

from __future__ import annotations

import json

import pytest

from lamina.bench import modes
from lamina.bench.timing import Measurement, Settings


@pytest.fixture(scope="module")
def figures() -> list[modes.ModeFigure]:
    return modes.run(Settings(rounds=3, loop_ns=20_000, warmup_ns=20_000, refuse_above=None))


def test_every_mode_is_timed_on_every_operator(figures: list[modes.ModeFigure]) -> None:
    assert {(each.op, each.mode) for each in figures} == {(op, mode) for op in modes.cases() for mode in modes.MODES}
    assert all(each.time_ns and each.time_ns.median > 0 for each in figures)
    empty = [each.ratio and each.ratio.median for each in figures if each.mode == modes.DISPATCH_MODE]
    assert empty == [1.0] * len(modes.cases())


def test_the_budgets_are_those_of_the_modes_that_have_one(figures: list[modes.ModeFigure]) -> None:
    found = list(modes.budgets(figures))
    assert len(found) == 2 * len(modes.cases())
    assert {each.at_most for each in found} == {1.5, 3.0}


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "cases", lambda: {"add": (max, (1, 2))})
    monkeypatch.setattr(modes, "Settings", lambda clock: Settings(rounds=3, clock=clock, refuse_above=None))
    assert modes.main(["--quick", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["figures"]) == len(modes.MODES)
    assert modes.main(["--quick", "--cpu-time"]) == 0
    assert "OpCounter" in capsys.readouterr().out


def test_a_figure_that_is_too_noisy_is_a_gap_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = {name: [1.0, 2.0, 9.0] if name == "OpCounter" else [1.0] * 3 for name in modes.MODES}
    monkeypatch.setattr(modes, "cases", lambda: {"add": (max, (1, 2))})
    monkeypatch.setattr(modes, "measure", lambda *_: Measurement(rounds, refuse_above=0.25))
    figures = modes.run(Settings())
    found = modes.to_json(figures, Settings())
    assert [gap["name"] for gap in found["gaps"]] == ["add | OpCounter"]
    assert "spans 400% of it" in found["gaps"][0]["reason"]
    assert "add | OpCounter" not in [each["name"] for each in found["figures"]]
    assert dict(row[:2] for row in next(modes.tables(figures)).rows)["OpCounter"] == ""
    assert [budget.measured for budget in modes.budgets(figures) if "OpCounter" in budget.text] == [None]
