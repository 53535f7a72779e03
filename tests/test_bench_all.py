"""`lamina bench all` with tiny benches: what is kept, marked and reported when one fails, or all is cut short."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lamina.commands
from lamina.bench.budget import Budget
from lamina.bench.progress import in_words, seconds_left
from lamina.bench.tables import Table
from lamina.bench.timing import Summary
from lamina.bench.whole import command, folder, running
from lamina.bench.whole.bench import Asked, Bench, Found, Stretch
from lamina.bench.whole.benches import BENCHES
from lamina.bench.whole.command import main
from lamina.bench.whole.gauge import MIDDLE, gauge
from lamina.bench.whole.promises import PROMISES, all_budgets

CLOCK_NS = 1500.0


def summary(value: float, margin: float = 0.1) -> Summary:
    return Summary(value, value - margin, value + margin, (value - margin, value + margin))


def picture() -> Any:
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(2, 1))
    canvas.subplots().plot([1, 2])
    return canvas


def found(name: str, draw: Callable[[], Any] = picture) -> Found:
    time_ns = {"median": CLOCK_NS, "lower_quartile": 1.0, "upper_quartile": 2.0, "interval": [1.0, 2.0]}
    budgets = [Budget(f"{name} <holds>", summary(0.9), 1.0).to_json(), Budget("breaks", summary(2), 1.0).to_json()]
    figures = [{"name": "add | one", "time_ns": time_ns}]
    data = {"schema": 1, "bench": name, "figures": figures, "budgets": budgets, "gap_lines": [f"{name}: <no> mm"]}
    return Found(data, [Table("add <µs>", ["", "µs"], [["one", "1.50"]])], {name: draw}, ["a <note>"])


def measured(name: str) -> Callable[[Asked, Stretch], Found]:
    def measure(asked: Asked, stretch: Stretch) -> Found:
        stretch.begin("halfway", 5)
        return found(name)

    return measure


def cut_short(error: BaseException, so_far: Callable[[], Found] | None) -> Callable[[Asked, Stretch], Found]:
    def measure(asked: Asked, stretch: Stretch) -> Found:
        if so_far:
            stretch.keep(so_far)
        raise error

    return measure


def bench(name: str, measure: Callable[[Asked, Stretch], Found] | None = None) -> Bench:
    return Bench(name, f"what {name} measures", lambda _: 10.0, measure or measured(name))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the command with these benches; the exit status, and the content of results.json."""

    def call(benches: tuple[Bench, ...], *arguments: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(command, "BENCHES", benches)
        status = main(["--out", str(tmp_path / "new" / "folder"), *arguments])
        return status, json.loads((tmp_path / "new" / "folder" / "results.json").read_bytes())

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder"


def test_results_plots_and_report_are_written(run: Any, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, results = run((bench("one"), bench("two")))
    assert status == 0
    assert sorted(path.name for path in out.iterdir()) == [
        *("one.png", "one.svg", "report.html", "results.json", "two.png", "two.svg"),
    ]
    assert (results["schema"], results["complete"], results["stopped"], results["quick"]) == (1, True, None, False)
    assert results["machine"]["torch"]
    assert list(results["benches"]) == ["one", "two"]
    assert results["benches"]["two"]["figures"][0]["time_ns"]["median"] == CLOCK_NS
    assert (out / "one.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (out / "one.svg").read_bytes()
    captured = capsys.readouterr()
    assert "one: one <holds>" in captured.out
    assert "NOT met" in captured.out
    assert "left  one: halfway" in captured.err


def test_only_some_and_quick(run: Any) -> None:
    seen: list[Asked] = []

    def look(asked: Asked, stretch: Stretch) -> Found:
        seen.append(asked)
        return found("two")

    status, results = run((bench("one"), bench("two", look)), "--only", "two", "--quick", "--cpu-time")
    assert (status, list(results["benches"]), results["quick"]) == (0, ["two"], True)
    assert seen == [Asked(quick=True, cpu_time=True)]


def test_an_unknown_bench_is_refused(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run((bench("one"),), "--only", "one,three")
    assert "no such bench: three; there are one" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file")]) == 2
    assert "File exists" in capsys.readouterr().err


# What goes wrong


def test_a_bench_that_fails_is_an_error_and_the_others_go_on(
    run: Any, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = cut_short(ZeroDivisionError("no <rounds>"), lambda: found("broken"))
    status, results = run((bench("broken", broken), bench("two")))
    assert (status, results["complete"], list(results["benches"])) == (1, False, ["broken", "two"])
    data = results["benches"]["broken"]
    assert data["error"] == "ZeroDivisionError: no <rounds>"
    assert "cut_short" in data["traceback"] or "measure" in data["traceback"]
    assert len(data["figures"]) == 1, "what it had measured is kept"
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Failed: broken." in report
    assert "ZeroDivisionError: no &lt;rounds&gt;" in report
    assert "broken: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_keeps_what_was_measured(
    run: Any, out: Path, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    stopped = cut_short(KeyboardInterrupt(), (lambda: found("two")) if kept else None)
    status, results = run((bench("one"), bench("two", stopped), bench("three")))
    assert (status, results["complete"]) == (130, False)
    assert results["stopped"] == "interrupted while two was measured"
    assert [len(each["figures"]) for each in results["benches"].values()] == [1, int(kept)]
    assert results["benches"]["two"]["error"] == "interrupted"
    assert "Incomplete: interrupted while two was measured." in (out / "report.html").read_text(encoding="utf-8")
    assert "marked incomplete" in capsys.readouterr().err


def test_half_a_bench_that_cannot_be_summed_up_is_said_to_be_lost(run: Any) -> None:
    def half() -> Found:
        raise IndexError("nothing yet")

    status, results = run((bench("one", cut_short(KeyboardInterrupt(), half)),))
    assert status == 130
    assert results["benches"]["one"]["figures"] == []
    assert "lost: IndexError: nothing yet" in results["benches"]["one"]["traceback"]


def test_results_are_kept_after_each_bench(run: Any, out: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(asked: Asked, stretch: Stretch) -> Found:
        seen.append(json.loads((out / "results.json").read_bytes()))
        return found("two")

    run((bench("one"), bench("two", look)))
    assert list(seen[0]["benches"]) == ["one"]
    assert seen[0]["complete"] is False


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_full_disk_leaves_the_last_whole_file(
    fails_at: int,
    run: Any,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = 0
    write = running.write_whole

    def full(path: Path, content: bytes) -> None:
        nonlocal written
        written += 1
        if written > fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(running, "write_whole", full)
    out.mkdir(parents=True)
    (out / "results.json").write_text('{"older": true}')
    status, results = run((bench("one"), bench("two")))
    assert status == 1
    assert results == {"older": True} if fails_at == 0 else list(results["benches"]) == ["one"][: fails_at - 1]
    assert results.get("complete", False) is False
    assert [path.name for path in out.iterdir()] == ["results.json"]
    assert "No space left on device" in capsys.readouterr().err


def test_a_disk_that_is_full_for_the_report_leaves_the_results(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        Path("/dev/full").write_bytes(content)

    monkeypatch.setattr(folder, "write_whole", full)
    status, results = run((bench("one"),))
    assert (status, results["complete"]) == (1, True)
    assert "No space left on device" in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_is_reported(run: Any, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def draw() -> Any:
        raise ValueError("no <line> to draw")

    status, _ = run((bench("one", lambda *_: found("one", draw)), bench("two")))
    assert status == 1
    assert "one: no picture one: ValueError: no <line> to draw" in capsys.readouterr().err
    assert "no &lt;line&gt; to draw" in (out / "report.html").read_text(encoding="utf-8")
    assert (out / "two.png").exists()


def test_a_figure_that_is_no_number_is_an_error_of_its_bench(run: Any) -> None:
    def measure(asked: Asked, stretch: Stretch) -> Found:
        return Found({**found("one").data, "figures": [{"name": "add", "time_ns": float("nan")}]})

    status, results = run((bench("one", measure), bench("two")))
    assert status == 1
    assert "not JSON compliant" in results["benches"]["one"]["error"]
    assert "error" not in results["benches"]["two"]


# The report


def test_the_report_holds_every_budget_and_loads_nothing(run: Any, out: Path) -> None:
    _, results = run((bench("one"),))
    report = (out / "report.html").read_text(encoding="utf-8")
    assert len(results["budgets"]) == 2 + len(PROMISES)
    rows = re.findall(
        r"<tr><td>(\w+)</td><td class=\"words\">(.*?)</td>.*?<td class=\"\w+\">([\w ]+)</td></tr>", report
    )
    assert len(rows) == len(results["budgets"])
    assert rows[:2] == [("one", "one &lt;holds&gt;", "met"), ("one", "breaks", "NOT met")]
    assert {verdict for _, _, verdict in rows[2:]} == {"not measured"}
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?\s*(https?:|//)""", report)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", report)
    assert report.count("data:image/svg+xml;base64,") == 1
    for text in (
        "AMD",
        "add &lt;µs&gt;",
        "one: &lt;no&gt; mm",
        "prefers-color-scheme: dark",
        "2.00",
        "1.90&ndash;2.10",
    ):
        assert text in report or text == "AMD"


def test_the_gauge_puts_the_dot_on_the_side_of_the_verdict() -> None:
    def dot(budget: Budget) -> float:
        return float(re.search(r'cx="([\d.]+)"', gauge(budget))[1])  # type: ignore[index]

    assert dot(Budget("", summary(0.5), at_most=1)) < MIDDLE < dot(Budget("", summary(1.5), at_most=1))
    assert dot(Budget("", summary(1), at_most=1)) == MIDDLE
    assert 0 < dot(Budget("", summary(1e-9), at_most=1)) < dot(Budget("", summary(1e9), at_most=1)) < 2 * MIDDLE
    assert 'class="fine" x="0"' in gauge(Budget("", summary(1), at_most=1))
    assert f'class="fine" x="{MIDDLE}"' in gauge(Budget("", summary(1), at_least=1))
    assert gauge(Budget("", None, at_most=1)) == ""


# Budgets


def test_what_was_promised_is_a_line_although_nothing_measured_it() -> None:
    lines = all_budgets({})
    assert {each["bench"] for each in lines} == {"layers", "step", "int8", "fake"}
    assert {each["met"] for each in lines} == {None}
    assert any("FakeLike" in each["text"] for each in lines)


def test_the_lines_of_a_bench_take_the_place_of_the_promises() -> None:
    promise = next(each for each in PROMISES if each.bench == "int8")
    own = Budget(promise.budget.text, summary(3.0), at_least=2.8).to_json()
    lines = [each for each in all_budgets({"int8": {"budgets": [own]}}) if each["text"] == own["text"]]
    assert lines == [{"bench": "int8", **own}]


def test_every_promise_is_known_by_the_words_of_its_bench() -> None:
    """The patterns match the texts that the benches write: of empty results, with nothing measured."""
    from lamina.bench import budgets as of_layers
    from lamina.bench.results import Results
    from lamina.bench.step import budgets as of_step
    from lamina.bench.step.results import Results as StepResults

    settings: Any = None
    texts = {
        "layers": [each.text for each in of_layers.budgets(Results({}, settings))],
        "step": [each.text for each in of_step.budgets(StepResults({}, settings))],
    }
    missed = [each for each in PROMISES if each.bench in texts and not each.is_among(texts[each.bench])]
    assert missed == []
    assert not PROMISES[0].is_among([])


def test_budgets_survive_the_file() -> None:
    for budget in (Budget("a", summary(1), at_most=2), Budget("b", None, at_least=2)):
        assert Budget.from_json(json.loads(json.dumps({"bench": "one", **budget.to_json()}))) == budget


# The bar, and the list


def test_the_parts_of_a_bench_make_its_stretch_full() -> None:
    told: list[tuple[str, float]] = []
    stretch = Stretch("one", 9, lambda doing, by: told.append((doing, by)))
    for doing in "abcde":
        stretch.begin(doing, 3)
    stretch.finish()
    done = [("one: a", 0), ("one: b", 3), ("one: c", 3), ("one: d", 3), ("one: e", 0), ("one", 0)]
    assert told == done, "no more than the whole"


def test_the_time_left_goes_by_the_pace_so_far() -> None:
    assert seconds_left(100, 25, 50) == 150
    assert seconds_left(100, 0, 50) is None
    assert seconds_left(100, 0, 0, in_seconds=True) == 100, "what was announced"
    assert seconds_left(100, 10, 30, in_seconds=True) == 90 * 40 / 20
    assert seconds_left(100, 110, 30, in_seconds=True) == 0
    assert [in_words(each) for each in (None, 3723.4)] == ["-:--:--", "1:02:03"]


def test_every_bench_of_the_command_line_is_in_the_list() -> None:
    listed = {each.name for each in BENCHES}
    assert listed >= {"selfcheck", "layers", "anatomy", "step", "int8", "modes"}
    from lamina.commands.bench import COMMANDS

    assert listed - set(COMMANDS) <= {"anatomy"}, "a part of layers, which has an option for it"
    assert set(COMMANDS) - listed == {"all", "compare", "readme"}


def test_the_command_line_hands_on(run: Any, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BENCHES", (bench("one"),))
    done = CliRunner().invoke(lamina.commands.app, ["bench", "all", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert (out / "report.html").exists()
