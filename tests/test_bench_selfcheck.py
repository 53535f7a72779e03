"""The check of the instrument, on measurements that were made: what counts as right, and what the command says."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from lamina.bench import selfcheck
from lamina.bench.selfcheck import BASE, OTHER, PARTS, PLANTED, SAME, WORKLOADS, main
from lamina.bench.timing import Measurement, Settings, Stop, Variant


class Instrument:
    """Takes the place of `measure`: each part of a call costs the same, with some noise; `bias` is its fault."""

    def __init__(self, *, noise: float = 0.01, bias: float = 1.0, interrupt_at: int = 1000) -> None:
        self.chance = np.random.default_rng(0)
        self.noise, self.bias, self.interrupt_at = noise, bias, interrupt_at
        self.made = 0

    def __call__(self, variants: Sequence[Variant], settings: Settings, ratios: object) -> Measurement:
        assert settings.confidence == 0.999
        self.made += 1
        if self.made == self.interrupt_at:
            raise KeyboardInterrupt
        assert ratios == [(OTHER, BASE)]
        rounds = {each.name: self.parts(each) * self.chance.normal(1, self.noise, 200) for each in variants}
        rounds[OTHER] *= self.bias
        return Measurement({name: list(map(float, times)) for name, times in rounds.items()}, stopped=Stop.NARROW)

    def parts(self, variant: Variant) -> int:
        """How often a call runs its part: it is called, and counted."""
        variant.function(counting := Counting())
        return counting.count


class Counting:
    """In the tensor's place: the part of each workload asks it for something."""

    count = 0


@pytest.fixture(autouse=True)
def counted_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(seen: Counting) -> None:
        seen.count += 1

    made = tuple(selfcheck.Workload(each.name, count, each.numbers) for each in WORKLOADS)  # type: ignore[arg-type]
    monkeypatch.setattr(selfcheck, "WORKLOADS", made)


def counts(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[float, bool]]:
    budgets = json.loads(capsys.readouterr().out)["budgets"]
    return {each["text"]: (each["measured"]["median"], each["met"]) for each in budgets}


def test_a_good_instrument_passes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(selfcheck, "measure", Instrument())
    assert main(["--json"]) == 0
    found = counts(capsys)
    assert list(found.values()) == [(20, True)] * 4
    assert f"small, {SAME}: right verdicts of 20" in found


def test_one_that_is_biased_finds_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selfcheck, "measure", Instrument(bias=1.03))
    assert main(["--json", "--times", "3"]) == 1
    found = counts(capsys)
    assert found[f"small, {SAME}: right verdicts of 3"] == (0, False)
    assert found[f"small, {PLANTED}: right verdicts of 3"] == (3, True)


def test_one_that_is_too_noisy_does_not_find_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selfcheck, "measure", Instrument(noise=0.5))
    assert main(["--json", "--times", "3"]) == 1
    found = counts(capsys)
    assert found[f"large, {SAME}: right verdicts of 3"] == (3, True)
    assert found[f"large, {PLANTED}: right verdicts of 3"] == (0, False)


def test_a_planted_slowdown_is_one_part_in_twenty() -> None:
    instrument = Instrument()
    assert [instrument.parts(selfcheck.WORKLOADS[0].variant("any", parts)) for parts in (PARTS, PARTS + 1)] == [20, 21]


def test_an_interrupt_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(selfcheck, "measure", Instrument(interrupt_at=3))
    assert main(["--times", "1", "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["stopped"].startswith("interrupted")
    assert [each["name"] for each in found["figures"]] == ["small | A/A | 0", "small | planted 5 % | 0"]
    monkeypatch.setattr(selfcheck, "measure", Instrument(interrupt_at=3))
    assert main(["--times", "1"]) == 130
    assert "not measured" in capsys.readouterr().out


def test_both_clocks_are_offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(selfcheck, "measure", Instrument())
    assert main(["--times", "1", "--json", "--cpu-time"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["clock"] == "thread_time_ns"
    with pytest.raises(SystemExit):
        main(["--times", "0"])


def test_the_real_instrument_runs_it() -> None:
    brief = Settings(rounds=3, loop_ns=1, warmup_ns=1)
    figure = selfcheck.compare(WORKLOADS[0], SAME, 0, brief)
    assert (len(figure.rounds_ns), figure.stopped) == (3, Stop.ROUNDS)
    assert figure.right
