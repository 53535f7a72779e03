"""The instrument: when it stops, what it restores, what it keeps. Time is a fake that passes as the variants say."""

from __future__ import annotations

import gc
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from fake_clock import FakeClock

from lamina.bench import timing
from lamina.bench.timing import (
    CALIBRATIONS,
    LONG_NS,
    InterruptedMeasurement,
    Measurement,
    Settings,
    Stop,
    Summary,
    TooNoisyError,
    Variant,
    describe_machine,
    measure,
    measure_into,
)

BRIEF = Settings(rounds=3, loop_ns=1, warmup_ns=1)
WARMING = 1 + CALIBRATIONS  # calls of a variant before the first round, where one call fills a loop


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
    gc.enable()


def noisy(clock: FakeClock, cost: float, spread: float, seed: int = 0) -> Callable[[], None]:
    """Something whose cost varies from call to call."""
    chance = random.Random(seed)
    return lambda: clock.spend(round(cost * chance.gauss(1, spread)))


def summary(value: float) -> Summary:
    return Summary(value, value, value, (value, value))


# Figures


def test_times_are_per_call_and_ratios_follow(clock: FakeClock) -> None:
    variants = [Variant("one", clock.spend, (10,)), Variant("other", clock.spend, (15,))]
    measured = measure(variants, Settings(rounds=5, loop_ns=1000, clock=clock, seconds=math.inf))
    assert measured.calls == {"one": 100, "other": 67}
    assert measured.time("one").median == 10
    assert measured.ratio("other", "one") == summary(1.5)


def test_a_variant_against_itself_is_one_however_the_machine_drifts(clock: FakeClock) -> None:
    pace = iter(range(1, 100))
    rounds = {"seen": 0}

    def slower_every_round() -> None:
        if rounds["seen"] % 2 == 0:
            rounds["pace"] = next(pace)
        rounds["seen"] += 1
        clock.spend(10 * rounds["pace"])

    settings = Settings(rounds=8, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf, refuse_above=None)
    variants = [Variant("a", slower_every_round), Variant("a again", slower_every_round)]
    measured = measure(variants, settings)
    assert measured.time("a").upper_quartile > measured.time("a").lower_quartile
    assert measured.ratio("a again", "a") == summary(1.0)


def test_ratios_are_paired_not_a_ratio_of_medians() -> None:
    measured = Measurement({"mine": [1.0, 20.0, 3.0], "base": [2.0, 10.0, 30.0]})
    assert measured.ratio("mine", "base").median == 0.5


def test_slopes_are_taken_round_by_round() -> None:
    measured = Measurement({"none": [1.0, 10.0], "one": [3.0, 15.0], "two": [5.0, 20.0]})
    assert measured.slopes({2: "two", 0: "none", 1: "one"}) == pytest.approx([2, 5])


def test_two_variants_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must differ.*'same'"):
        measure([Variant("same", int), Variant("same", float)], BRIEF)


def test_a_ratio_to_what_is_not_measured_is_refused_first() -> None:
    with pytest.raises(ValueError, match=r"\['absent'\]. There are: \['there'\]"):
        measure([Variant("there", lambda: pytest.fail("timed"))], BRIEF, [("there", "absent")])


def test_of_no_variants_there_is_nothing_to_measure() -> None:
    assert measure([], BRIEF).rounds == {}


# Rounds


def test_every_round_runs_all_variants_in_a_new_order() -> None:
    calls: list[str] = []
    variants = [Variant(name, calls.append, (name,)) for name in "abcd"]
    measure(variants, Settings(rounds=10, loop_ns=0, warmup_ns=1))
    timed = calls[4 * WARMING :]
    rounds = ["".join(timed[start : start + 4]) for start in range(0, 40, 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    assert len(set(rounds)) > 3


def test_short_variants_have_an_untimed_call_before_each_loop(clock: FakeClock) -> None:
    calls: list[str] = []

    def spend(name: str, nanoseconds: int) -> None:
        calls.append(name)
        clock.spend(nanoseconds)

    variants = [Variant("short", spend, ("short", 10)), Variant("long", spend, ("long", 30))]
    measured = measure(
        variants, Settings(rounds=5, loop_ns=20, warmup_ns=1, clock=clock, seconds=math.inf, lead_below_ns=20)
    )
    assert measured.calls == {"short": 2, "long": 1}
    assert measured.time("short").median == 10
    assert calls.count("short") == WARMING + 5 * (1 + 2)
    assert calls.count("long") == WARMING + 5


def test_arguments_are_renewed_every_few_rounds_and_the_first_call_is_not_timed(clock: FakeClock) -> None:
    built: list[int] = []
    seen: list[int] = []

    def renew() -> tuple[int]:
        built.append(len(built) + 1)
        return (built[-1],)

    def work(number: int) -> None:
        clock.spend(10 if number in seen else 1000)
        seen.append(number)

    variants = [Variant("renewed", work, (0,), renew=renew), Variant("kept", clock.spend, (10,))]
    settings = Settings(rounds=7, loop_ns=10, warmup_ns=1, clock=clock, seconds=math.inf, renew_every=3, fewest=7)
    measured = measure(variants, settings)
    assert built == [1, 2]
    assert measured.rounds["renewed"] == [10] * 7
    assert [seen.count(number) for number in (1, 2)] == [1 + 3, 1 + 1]


def test_interruptions_while_calibrating_make_no_loop_short(clock: FakeClock) -> None:
    calls = {"made": 0}

    def work() -> None:
        calls["made"] += 1
        interrupted = calls["made"] in {2, 3, 5}
        clock.spend(10_000 if interrupted else 10)

    measured = measure(
        [Variant("often interrupted", work), Variant("never", clock.spend, (10,))],
        Settings(rounds=5, loop_ns=1000, warmup_ns=1, clock=clock, seconds=math.inf),
    )
    assert measured.calls == {"often interrupted": 100, "never": 100}


def test_a_long_call_is_calibrated_once(clock: FakeClock) -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        clock.spend(LONG_NS)

    measure([Variant("long", work)], Settings(rounds=3, loop_ns=10, warmup_ns=1, clock=clock))
    assert len(calls) == 1 + 1 + 3


def test_the_scope_is_entered_around_the_loop() -> None:
    seen: set[bool] = set()
    measure([Variant("look", lambda: seen.add(torch.is_grad_enabled()), scope=torch.no_grad)], BRIEF)
    assert seen == {False}


# When it stops


def test_it_stops_at_the_fewest_rounds_where_all_agree(clock: FakeClock) -> None:
    measured = measure(
        [Variant("steady", clock.spend, (10,))], Settings(loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf)
    )
    assert (measured.stopped, measured.whole_rounds()) == (Stop.NARROW, Settings.fewest)


@pytest.mark.parametrize("target", [0.1, 0.04])
def test_it_goes_on_until_the_interval_is_narrow(clock: FakeClock, target: float) -> None:
    settings = Settings(loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf, target=target)
    measured = measure([Variant("noisy", noisy(clock, 1e6, 0.1))], settings)
    assert measured.stopped is Stop.NARROW
    assert measured.time("noisy").width <= target
    # Of normal noise the interval of the median is 2 * 1.96 * 1.25 * 0.1 / sqrt(rounds) wide.
    assert 0.3 < measured.whole_rounds() / (0.49 / target) ** 2 < 3


def test_the_ratios_that_are_asked_for_decide_not_the_times(clock: FakeClock) -> None:
    chance = random.Random(0)
    mood = {"round": 0.0, "calls": 0}

    def work() -> None:
        """Both variants of a round suffer alike: their ratio is 1, their times are all over the place."""
        if mood["calls"] % 2 == 0:
            mood["round"] = chance.uniform(1, 3)
        mood["calls"] += 1
        clock.spend(round(1e6 * mood["round"]))

    variants = [Variant("a", work), Variant("b", work)]
    settings = Settings(rounds=50, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf)
    assert measure(variants, settings, [("b", "a")]).stopped is Stop.NARROW
    assert measure(variants, settings).stopped is Stop.ROUNDS


def test_a_surer_interval_takes_more_rounds(clock: FakeClock) -> None:
    settings = Settings(loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf, target=0.1)
    rounds = [
        measure([Variant("noisy", noisy(clock, 1e6, 0.1))], each).whole_rounds()
        for each in (settings, Settings(**{**vars(settings), "confidence": 0.999}))
    ]
    assert rounds[0] < rounds[1]


def test_it_stops_when_time_is_out_but_not_before_the_fewest_rounds(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(loop_ns=1, warmup_ns=1, clock=clock, target=0.0, fewest=7, seconds=1.0)
    wall = iter(range(0, 10**12, 10**8))  # a tenth of a second from look to look
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(wall))
    measured = measure([Variant("noisy", noisy(clock, 1e6, 0.1))], settings)
    assert (measured.stopped, measured.whole_rounds()) == (Stop.TIME, 7 + 9)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(wall) * 1000)
    measured = measure([Variant("noisy", noisy(clock, 1e6, 0.1))], settings)
    assert (measured.stopped, measured.whole_rounds()) == (Stop.TIME, 7)


def test_it_stops_when_all_rounds_were_run(clock: FakeClock) -> None:
    settings = Settings(rounds=11, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf, target=0.0)
    measured = measure([Variant("noisy", noisy(clock, 1e6, 0.1))], settings)
    assert (measured.stopped, measured.whole_rounds()) == (Stop.ROUNDS, 11)


# What is refused


def test_a_figure_that_is_too_noisy_is_refused_with_its_spread(clock: FakeClock) -> None:
    settings = Settings(rounds=20, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf)
    variants = [Variant("noisy", noisy(clock, 1e6, 0.6)), Variant("steady", clock.spend, (10,))]
    measured = measure(variants, settings, [("noisy", "steady")])
    assert measured.time("steady").median == 10
    with pytest.raises(
        TooNoisyError, match=r"the time of noisy is too noisy: .* 25% are allowed .*all rounds"
    ) as error:
        measured.time("noisy")
    assert f"(quartiles {error.value.summary.spread:.0%} apart, 20 rounds" in str(error.value)
    assert f"{error.value.summary.median:.0f}" not in str(error.value)
    with pytest.raises(TooNoisyError, match="noisy / steady is too noisy"):
        measured.ratio("noisy", "steady")


def test_whether_to_refuse_is_a_setting() -> None:
    rounds = {"noisy": [1.0, 2.0, 9.0]}
    assert Measurement(rounds, refuse_above=None).time("noisy").median == 2
    assert Measurement(rounds, refuse_above=4.0).time("noisy").median == 2
    with pytest.raises(TooNoisyError, match="spans 400% of it, 390% are allowed"):
        Measurement(rounds, refuse_above=3.9).time("noisy")


# What is restored


def state() -> tuple[int, bool]:
    return torch.get_num_threads(), gc.isenabled()


@pytest.mark.usefixtures("two_threads")
def test_one_thread_and_no_collection_while_timing_then_as_before() -> None:
    seen: set[tuple[int, bool]] = set()
    measure([Variant("look", lambda: seen.add(state()))], BRIEF)
    assert seen == {(1, False)}
    assert state() == (2, True)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_state_is_restored_however_a_variant_ends(error: type[BaseException]) -> None:
    left: list[str] = []

    class Scope:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            left.append("scope")

    def fail() -> None:
        raise error

    with pytest.raises(error):
        measure([Variant("fail", fail, scope=Scope)], BRIEF)
    assert state() == (2, True)
    assert left == ["scope"]


@pytest.mark.usefixtures("two_threads")
def test_state_is_restored_when_the_user_interrupts_while_it_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure([Variant("nothing", int)], BRIEF)
    assert state() == (2, True)


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        measure([Variant("nothing", int)], BRIEF)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_chance_elsewhere_is_left_alone(clock: FakeClock) -> None:
    random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state()
    variants = [Variant(name, clock.spend, (10,), renew=lambda: (10,)) for name in "ab"]
    measure(variants, Settings(rounds=9, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


# An interrupt


def test_an_interrupt_keeps_the_whole_rounds(clock: FakeClock) -> None:
    calls = {"made": 0}

    def work() -> None:
        calls["made"] += 1
        if calls["made"] == 2 * WARMING + 2 * 10 + 2:  # after ten rounds and one variant of the next
            raise KeyboardInterrupt
        clock.spend(10)

    settings = Settings(rounds=50, fewest=50, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf)
    with pytest.raises(KeyboardInterrupt) as error:
        measure([Variant("a", work), Variant("b", work)], settings)
    assert isinstance(error.value, InterruptedMeasurement)
    assert str(error.value) == "interrupted after 10 whole rounds"
    kept = error.value.measurement
    assert kept.stopped is Stop.INTERRUPTED
    assert {name: len(rounds) for name, rounds in kept.rounds.items()} == {"a": 10, "b": 10}
    assert kept.ratio("b", "a") == summary(1.0)


def test_an_interrupt_while_warming_keeps_nothing_and_says_so() -> None:
    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(InterruptedMeasurement, match="after 0 whole rounds"):
        measure([Variant("a", work)], BRIEF)


# What is told


def test_the_machine_is_described() -> None:
    machine = describe_machine()
    assert machine["torch"] == torch.__version__
    assert machine["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert machine["intraop_threads"] == torch.get_num_threads()
    assert len(str(machine["load_average"]).split()) in {1, 3}
    assert all(value != "" for value in machine.values())


def test_what_the_system_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    def no_load() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr("os.getloadavg", no_load)
    monkeypatch.setattr("lamina.bench.machine.GOVERNOR", tmp_path)
    machine = describe_machine()
    assert (machine["load_average"], machine["frequency_governor"]) == ("unknown", "unknown")


def test_settings_are_plain_data() -> None:
    data = json.loads(json.dumps(Settings(clock=time.thread_time_ns).quick().to_json()))
    assert data["clock"] == "thread_time_ns"
    assert data["seconds"] < Settings.seconds


# What is refused is measured again


def steady(*refused: str) -> Measurement:
    """Three variants; the rounds of these are far apart."""
    return Measurement({name: [1.0, 9.0] if name in refused else [2.0, 2.0] for name in "abc"}, refuse_above=0.25)


@pytest.mark.parametrize(
    ("attempts", "found", "kept"),
    [
        (2, [steady()], 0),
        (2, [steady("a"), steady()], 1),
        (2, [steady("a", "b"), steady("c")], 1),
        (2, [steady("a"), steady("b", "c")], 0),
        (2, [steady("a"), steady("b")], 0),
        (3, [steady("a"), steady("b", "c"), steady()], 2),
        (1, [steady("a", "b")], 0),
    ],
)
def test_what_is_refused_is_measured_again_and_the_steadiest_attempt_kept(
    attempts: int, found: list[Measurement], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(found)
    monkeypatch.setattr(timing, "measure", lambda *_: next(left))
    given: list[Measurement] = []
    measure_into(given.append, [], replace(BRIEF, attempts=attempts))
    assert given == [found[kept]]
    assert list(left) == []


def test_a_ratio_that_is_refused_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": [1.0, 1.1, 1.2], "b": [1.2, 1.1, 1.0]}
    apart, together = Measurement(times, refuse_above=0.25), Measurement({**times, "b": times["a"]}, refuse_above=0.25)
    assert (apart.refused(), apart.refused([("a", "b")]), together.refused([("a", "b")])) == (0, 1, 0)
    left = iter([apart, together])
    monkeypatch.setattr(timing, "measure", lambda *_: next(left))
    given: list[Measurement] = []
    measure_into(given.append, [], replace(BRIEF, attempts=2), [("a", "b")])
    assert given == [together]


def test_an_interrupt_of_the_second_attempt_leaves_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = steady("a")
    answers = iter([lambda: first, partial(_interrupt, steady())])
    monkeypatch.setattr(timing, "measure", lambda *_: next(answers)())
    given: list[Measurement] = []
    with pytest.raises(InterruptedMeasurement):
        measure_into(given.append, [], replace(BRIEF, attempts=2))
    assert given == [first]


def _interrupt(measured: Measurement) -> None:
    raise InterruptedMeasurement(measured)


def test_a_machine_that_changes_its_speed_in_the_middle_is_measured_again(clock: FakeClock) -> None:
    calls = {"done": 0}

    def work() -> None:
        calls["done"] += 1
        clock.spend(10 if calls["done"] < WARMING + 4 or calls["done"] > WARMING + 8 else 30)

    settings = Settings(rounds=8, loop_ns=1, warmup_ns=1, clock=clock, seconds=math.inf, fewest=8)
    given: list[Measurement] = []
    measure_into(given.append, [Variant("work", work)], settings)
    assert calls["done"] == 2 * (WARMING + 8)
    assert given[0].time("work") == summary(10)
