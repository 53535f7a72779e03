"""`lamina bench modes`, in a few rounds: figures for all modes, and each mode entered. No time is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.bench import modes
from lamina.bench.timing import Measurement, Settings


@pytest.fixture(scope="module")
def results() -> modes.Results:
    return modes.run(Settings(rounds=3, loop_ns=20_000, warmup_ns=20_000, refuse_above=None))


def test_every_mode_is_timed_on_every_operator(results: modes.Results) -> None:
    figures = results.figures
    assert {(each.op, each.mode) for each in figures} == {(op, mode) for op in modes.cases() for mode in modes.MODES}
    assert all(each.time_ns.median > 0 for each in figures)
    empty = [each.ratio.median for each in figures if each.mode == modes.DISPATCH_MODE]
    assert empty == [1.0] * len(modes.cases())


def test_the_budgets_are_those_of_the_modes_that_have_one(results: modes.Results) -> None:
    found = list(modes.budgets(results))
    assert len(found) == 2 * len(modes.cases())
    assert {each.at_most for each in found} == {1.5, 3.0}


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(modes, "cases", lambda: {"add": (max, (1, 2))})
    main = replace(modes.COMMAND, options=lambda _: Settings(rounds=3, refuse_above=None)).main
    assert main(["--quick", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["figures"]) == len(modes.MODES)
    assert main(["--quick", "--plot", str(tmp_path / "modes.png")]) == 0
    assert "OpCounter" in capsys.readouterr().out
    assert (tmp_path / "modes.png").read_bytes().startswith(b"\x89PNG")


def test_options() -> None:
    chosen = modes.chosen_settings(modes.parser().parse_args(["--quick", "--cpu-time"]))
    assert (chosen.seconds, chosen.clock.__name__) == (2.0, "thread_time_ns")


def test_a_figure_that_is_too_noisy_is_a_gap_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = {name: [1.0, 2.0, 9.0] if name == "OpCounter" else [1.0] * 3 for name in modes.MODES}

    def measured(add: Callable[[Measurement], object], *_: object) -> None:
        add(Measurement(rounds, refuse_above=0.25))

    monkeypatch.setattr(modes, "cases", lambda: {"add": (max, (1, 2))})
    monkeypatch.setattr(modes, "measure_into", measured)
    results = modes.run(Settings())
    assert [(gap.op, gap.subject, gap.kind) for gap in results.gaps] == [("add", "OpCounter", "noisy")]
    assert "spans 400% of it" in results.gaps[0].reason
    assert "OpCounter" not in [each.mode for each in results.figures]
    assert "OpCounter" not in dict(row[:2] for row in next(modes.tables(results)).rows)
    assert [budget.measured for budget in modes.budgets(results) if "OpCounter" in budget.text] == [None]
