"""`lamina bench compare` and `lamina bench readme`, on canned results: what is found, refused, and written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lamina.bench.cases import FORWARDS
from lamina.bench.int8.step import INT16, STOCHASTIC
from lamina.bench.int8.subjects import ours
from lamina.bench.ours import LOGGING, TRANSPARENT
from lamina.bench.peers import HAND_WRITTEN, TORCH_LOGGING, TWO_TENSOR
from lamina.bench.step.conditions import MODES as STEP_MODES
from lamina.bench.step.models import LARGE
from lamina.bench.whole import compare, readme
from lamina.bench.whole.comparison import THRESHOLD, Compared, Cost
from lamina.bench.whole.loading import load
from lamina.bench.whole.published import INT8_SUBJECTS, OPS, STEP_SUBJECTS, rounded

ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"processor": "one", "cpu_capability": "AVX512", "torch": "2.13.0", "load_average": "0.1"}


def summary(median: float, width: float = 0.02) -> dict[str, Any]:
    low, high = median * (1 - width / 2), median * (1 + width / 2)
    return {"median": median, "lower_quartile": low, "upper_quartile": high, "interval": [low, high]}


def figure(name: str, time: float, **ratios: float) -> dict[str, Any]:
    return {"name": name, "time_ns": summary(time), **{key: summary(value) for key, value in ratios.items()}}


def bench(name: str, *figures: dict[str, Any], clock: str = "perf_counter_ns") -> dict[str, Any]:
    data = {"schema": 1, "bench": name, "machine": MACHINE, "settings": {"clock": clock}}
    return {**data, "figures": list(figures), "budgets": [], "gaps": []}


def whole(*benches: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"schema": 1, "machine": MACHINE, "complete": True, "quick": False, "date": "2026-11-30"}
    return {**data, "benches": {each["bench"]: each for each in benches}, "budgets": [], **more}


BASE = whole(
    bench("layers", figure("add | plain", 1000), figure("add | one", 7000, to_plain=7.0), figure("old", 5)),
    bench("int8", figure("linear | int16", 300, speedup=2.0)),
)


def changed(**figures: Any) -> dict[str, Any]:
    """BASE, with the time or ratios of some figures multiplied: by `bench/name`, or all of a field by its name."""
    data = json.loads(json.dumps(BASE))
    for name, found in data["benches"].items():
        for each in found["figures"]:
            for field, factor in figures.get(f"{name}/{each['name']}", {}).items():
                each[field] = summary(each[field]["median"] * factor)
    return data


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    """Writes each of the data to a file; the paths."""

    def write(*data: Any) -> list[str]:
        paths = [tmp_path / f"{number}.json" for number in range(len(data))]
        for path, each in zip(paths, data, strict=True):
            path.write_text(each if isinstance(each, str) else json.dumps(each))
        return [str(path) for path in paths]

    return write


def compared(files: Any, capsys: pytest.CaptureFixture[str], *data: Any, arguments: tuple[str, ...] = ()) -> Any:
    """The exit status, and the verdicts by figure with what was compared."""
    status = compare.main([*files(*data), "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    return status, {each["name"]: (each["what"], each["verdict"]) for each in found["compared"]}


# What changed


def test_equal_files_show_no_change(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = compared(files, capsys, BASE, BASE)
    assert status == 0
    assert found == {
        "add | plain": ("time", "alike"),
        "add | one": ("to_plain", "alike"),
        "old": ("time", "alike"),
        "linear | int16": ("1 / speedup", "alike"),
    }


@pytest.mark.parametrize(
    ("change", "verdict", "status"),
    [
        ({"layers/add | one": {"to_plain": 1.2}}, {"add | one": "slower"}, 1),
        ({"layers/add | one": {"to_plain": 0.8}}, {"add | one": "faster"}, 0),
        ({"layers/add | one": {"to_plain": 1.04}}, {}, 0),  # the intervals don't meet, but it is not much
        ({"int8/linear | int16": {"speedup": 0.8}}, {"linear | int16": "slower"}, 1),
        ({"int8/linear | int16": {"speedup": 1.25}}, {"linear | int16": "faster"}, 0),
        ({"layers/old": {"time_ns": 1.5}}, {"old": "slower"}, 1),
        ({"layers/add | one": {"time_ns": 1.5}}, {}, 0),  # the machine was slower: the ratio is what it was
    ],
)
def test_what_got_slower_or_faster(
    change: Any, verdict: dict[str, str], status: int, files: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    got, found = compared(files, capsys, BASE, changed(**change))
    assert got == status
    assert {name: each for name, (_, each) in found.items() if each != "alike"} == verdict


def test_intervals_that_meet_are_no_change(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wide = json.loads(json.dumps(BASE))
    wide["benches"]["layers"]["figures"][1]["to_plain"] = summary(8.4, width=0.5)
    assert compared(files, capsys, BASE, wide)[0] == 0


def test_the_threshold_is_an_option(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    slower = changed(**{"layers/add | one": {"to_plain": 1.04}})
    assert compared(files, capsys, BASE, slower, arguments=("--threshold", "3"))[0] == 1
    with pytest.raises(SystemExit, match="2"):
        compare.main([*files(BASE, BASE), "--threshold", "-1"])
    assert "'-1' is no percentage" in capsys.readouterr().err


def test_the_interval_of_a_change_encloses_it() -> None:
    each = Compared("layers", "add", "time_ns", Cost(100, 90, 110), Cost(150, 140, 165), THRESHOLD)
    low, high = each.interval
    assert (low, each.change, high) == (140 / 110 - 1, 0.5, 165 / 90 - 1)
    assert Cost.of(summary(2.0), inverted=True) == Cost(0.5, 1 / 2.02, 1 / 1.98)


def test_the_table_says_what_is_compared_and_what_is_missing(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    after = changed(**{"layers/add | one": {"to_plain": 1.2}})
    after["benches"]["layers"]["figures"][2]["name"] = "new"
    assert compare.main(files(BASE, after)) == 1
    shown = capsys.readouterr().out
    assert "layers: add | one" in shown
    assert "+20.0%" in shown
    assert "1 slower, 0 faster, 2 alike; 2 compared by ratio, 1 by time" in shown
    assert "only before:\n- layers: old\nonly after:\n- layers: new" in shown
    assert "add | plain" not in shown
    compare.main([*files(BASE, after), "--all"])
    assert "add | plain" in capsys.readouterr().out


def test_one_bench_is_compared_with_all(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = compared(files, capsys, BASE["benches"]["int8"], BASE)
    assert (status, list(found)) == (0, ["linear | int16"])


# What is not to be compared


def test_another_machine_is_refused_unless_forced(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    other = {**BASE, "machine": {**MACHINE, "processor": "other"}}
    assert compare.main(files(BASE, other)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "processor: one before, other after" in captured.err
    assert "--force" in captured.err
    assert compared(files, capsys, BASE, other, arguments=("--force",))[0] == 0


def test_another_version_is_a_warning_and_another_load_is_nothing(
    files: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**BASE, "machine": {**MACHINE, "torch": "2.14.0", "load_average": "9"}}
    assert compare.main(files(BASE, other)) == 0
    assert capsys.readouterr().err == "warning: torch: 2.13.0 before, 2.14.0 after\n"


def test_an_incomplete_file_is_a_warning(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(files(BASE, {**BASE, "complete": False})) == 0
    assert "1.json is incomplete" in capsys.readouterr().err


def test_two_clocks_are_refused(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mine, its = (bench("modes", figure("add", 5), clock=clock) for clock in ("perf_counter_ns", "thread_time_ns"))
    assert compare.main(files(mine, its)) == 2
    assert "modes: timed by perf_counter_ns before, by thread_time_ns after" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no results of a bench: there is no schema"),
        ({"schema": 2, "benches": {}}, "has schema 2, and this lamina reads 1"),
        ({"schema": 1}, "None has no figures"),
        ({"schema": 1, "benches": []}, "benches is no object"),
        ({"schema": 1, "bench": "layers"}, "layers has no figures"),
        (bench("layers", {"name": "add"}), "figure 0 of layers lacks its name or its time_ns"),
        (bench("layers", {"name": "add", "time_ns": {"median": 1}}), "figure 0 of layers lacks"),
        (bench("layers", figure("old", 0)), "no figure in common"),
        (bench("anatomy", figure("old", 1)), "the other none"),
        (whole(bench("layers", figure("mm", 1))), "no figure in common: the one has 3 of layers, 1 of int8, the other"),
    ],
)
def test_what_cannot_be_read_is_said(content: Any, reason: str, files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(files(BASE, content)) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.out == ""


def test_a_file_that_is_not_there(files: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([*files(BASE), str(tmp_path / "nothing.json")]) == 2
    assert "nothing.json: No such file or directory" in capsys.readouterr().err


# The README


def layers_bench() -> dict[str, Any]:
    subjects = {HAND_WRITTEN: 1.0, TRANSPARENT: 1.1, LOGGING: 1.12, TORCH_LOGGING: 3.5, TWO_TENSOR: 8.0}
    figures = [
        figure(f"{op} | {subject}", 7200 * ratio, to_plain=8 * ratio, to_hand_written=ratio)
        | {"op": op, "subject": subject, "layers": 1, "circumstance": "eager"}
        for op in OPS
        for subject, ratio in subjects.items()
    ]
    plain = {"op": "add", "subject": "plain", "layers": 0, "circumstance": "eager"}
    shares = [
        {"op": case.op, "subject": LOGGING, "dispatch_share": summary(share)}
        for case, share in zip(FORWARDS, (0.84, 0.07), strict=True)
    ]
    slopes = [{"op": op, "subject": LOGGING, "to_hand_written": summary(1.2)} for op in OPS if op != "cat"]
    data = bench("layers", *figures, figure("add | plain", 900, to_plain=1) | plain)
    return {**data, "slopes": slopes, "shares": shares}


def int8_bench() -> dict[str, Any]:
    figures = [
        {
            **figure(f"float32 2048x2048 M={rows} | {subject} | {mode}", 100, speedup=speedup),
            "decibels": {"to_dequantized": 89.2 + rows, "to_original": 40.0},
        }
        for rows in (1, 16, 64)
        for subject in INT8_SUBJECTS
        for mode, speedup in (("eager", 2.0 + rows), ("compiled", 2.5))
        if (subject, rows) != (ours("float"), 64)
    ]
    steps = [
        figure(f"training step | {subject} | {mode}", 100, speedup=1.1 if mode == "eager" else 1.2)
        for subject in (INT16, STOCHASTIC)
        for mode in ("eager", "compiled")
    ]
    return bench("int8", *figures, *steps)


def step_bench() -> dict[str, Any]:
    figures = [
        figure(f"MLP | SGD | {mode} | 64 parameters | {subject}", 1e6, to_plain=1.25, added_ns=11_000)
        | {"width": 16, "layers": 1}
        for mode in STEP_MODES
        for subject in STEP_SUBJECTS[:2]
    ]
    return bench("step", *figures, figure("large", 1e7, to_plain=1.013) | {"width": LARGE.width, "layers": 1})


def marked(*names: str) -> str:
    return "\n".join(f"text\n<!-- bench: {name} -->\nold\n<!-- end of bench: {name} -->\nmore" for name in names)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "bench").mkdir()
    (tmp_path / "README.md").write_text(marked("layers", "int8"))
    return tmp_path


def test_the_tables_are_written_from_results(house: Path, files: Any) -> None:
    (results,) = files(whole(layers_bench(), int8_bench()))
    assert readme.main([results, str(house / "README.md"), "--check"]) == 1
    assert "old" in (house / "README.md").read_text()
    assert readme.main([results, str(house / "README.md")]) == 0
    text = (house / "README.md").read_text()
    assert text.startswith("text\n<!-- bench: layers -->\n\n| operator |")
    assert "old" not in text
    assert "| `add` | 0.12 | 1.00 | 1.10 | 1.12 | 1.20 | 3.50 | 8.00 |" in text
    assert "| `cat` | 0.12 | 1.00 | 1.10 | 1.12 | | 3.50 | 8.00 |" in text, "a gap is an empty cell"
    assert "took 7.2 µs on that machine, and plain `add` 0.9." in text
    assert "84 % of the time at width 16 and batch 16, and 7 % at width 256 and batch 256." in text
    assert '| `"int16"`, packed | 3.00 / 2.50 | 18.00 / 2.50 | 66.00 / 2.50 | 90 |' in text
    assert '| `"float"` | 3.00 / 2.50 | 18.00 / 2.50 | | 90 |' in text
    assert "1.10 times as fast as fp32 eager, 1.20 compiled; with stochastic rounding 1.10 and 1.20." in text
    assert text.count("Measured on one (AVX512), PyTorch 2.13.0.") == 2
    assert readme.main([results, str(house / "README.md"), "--check"]) == 0
    assert readme.main([str(house / "bench" / "published.json"), str(house / "README.md"), "--check"]) == 0


def test_the_table_of_steps(house: Path, files: Any) -> None:
    (house / "README.md").write_text(marked("step"))
    (results,) = files(whole(step_bench(), layers_bench()))
    assert readme.main([results, str(house / "README.md")]) == 0
    text = (house / "README.md").read_text()
    assert "| compiled model | 1.25 | 1.25 | | 11.0 |" in text
    assert "the compiled step takes 1.01 times as long with one layer" in text
    assert list(readme.read_published(house / "bench" / "published.json")) == ["step"], "what the README does not show"


def test_only_what_the_tables_need_is_published(house: Path, files: Any) -> None:
    (results,) = files(whole(layers_bench(), int8_bench(), machine={**MACHINE, "system": "/home/somebody"}))
    readme.main([results, str(house / "README.md")])
    published = (house / "bench" / "published.json").read_text()
    assert len(published) < 12_000
    assert "somebody" not in published
    assert "rounds_ns" not in published
    assert rounded(1 / 3) == 0.3333


def test_results_of_one_bench_leave_the_other_tables_as_they_are(house: Path, files: Any) -> None:
    both, one = files(whole(layers_bench(), int8_bench()), layers_bench())
    readme.main([both, str(house / "README.md")])
    before = (house / "README.md").read_text()
    assert readme.main([one, str(house / "README.md")]) == 0
    assert (house / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("no marks", {}, "no place for a table: write <!-- bench: layers -->"),
        (marked("layers", "nothing"), {}, "there are no figures for `bench: nothing`; there are those of layers, int8"),
        (marked("layers"), {"quick": True}, "is of a quick run"),
        (marked("layers"), {"complete": False}, "is of an incomplete run"),
    ],
)
def test_what_cannot_be_published_is_refused_and_nothing_is_written(
    text: str, more: Any, reason: str, house: Path, files: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (house / "README.md").write_text(text)
    (results,) = files(whole(layers_bench(), int8_bench(), **more))
    assert readme.main([results, str(house / "README.md")]) == 2
    assert reason in capsys.readouterr().err
    assert (house / "README.md").read_text() == text
    assert list((house / "bench").iterdir()) == []


def test_a_readme_that_is_not_there(house: Path, files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (results,) = files(BASE["benches"]["int8"])
    assert readme.main([results, str(house / "nothing.md")]) == 2
    assert "nothing.md: No such file or directory" in capsys.readouterr().err


def test_the_readme_and_the_published_figures_agree() -> None:
    """Written by `lamina bench readme RESULTS README.md`; by hand, figures and tables would drift apart."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = readme.read_published(ROOT / "bench" / "published.json")
    assert {match[2] for match in readme.MARK.finditer(text)} == set(blocks)
    assert readme.rendered(text, blocks) == text


def test_a_figure_changed_by_hand_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "bench" / "published.json", tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `add` |"))
    (tmp_path / "README.md").write_text(text.replace(row, row.replace("1.00", "0.99")), encoding="utf-8")
    published = str(tmp_path / "published.json")
    assert readme.main([published, str(tmp_path / "README.md"), "--published", published, "--check"]) == 1
    assert "differs" in capsys.readouterr().err


def test_loaded_figures_are_found_by_bench_and_name(files: Any) -> None:
    (path,) = files(BASE)
    assert set(load(Path(path)).figures) == {
        *(("layers", "add | plain"), ("layers", "add | one"), ("layers", "old"), ("int8", "linear | int16")),
    }
