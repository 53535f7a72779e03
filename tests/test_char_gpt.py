"""examples/char_gpt.py: int8 weights learn what float32 weights learn, in a third of the bytes."""

from __future__ import annotations

import json
import re
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from test_examples import GPT, run

SHORT = ("--steps", "40", "--characters", "20", "--width", "64")
PNG = b"\x89PNG\r\n\x1a\n"


def trained(folder: Path, *arguments: str) -> dict[str, Any]:
    ran = run(GPT, *SHORT, *arguments, "--json", folder=folder)
    assert ran.returncode == 0, ran.stderr
    made: dict[str, Any] = json.loads(ran.stdout)
    return made


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("gpt")
    made = trained(folder, "--no-compile", "--plot", "losses.png")
    made["picture"] = (folder / "losses.png").read_bytes()
    return made


def test_both_learn_and_end_within_two_percent(eager: dict[str, Any]) -> None:
    assert [row["weights"] for row in eager["trained"]] == ["fp32", "int8"]
    for row in eager["trained"]:
        assert len(row["losses"]) == 40
        assert statistics.mean(row["losses"][-5:]) < 0.7 * row["losses"][0]
        assert row["held_out"] < 0.7 * row["losses"][0]
    (ratio,) = eager["ratios"]
    assert abs(ratio - 1) < 0.02


def test_int8_takes_a_quarter_of_the_bytes_of_linear_weights(eager: dict[str, Any]) -> None:
    fp32, int8 = (row["bytes"] for row in eager["trained"])
    values, rows = 64 * (2 * 12 * 64 + 103), 2 * 9 * 64 + 103  # of two blocks and the head
    assert fp32 - int8 == 3 * values - 4 * rows
    assert {row["activation"]: row["bytes"] for row in eager["written"]} == {"fp32": fp32, "int16": int8, "int8": int8}


def test_each_writes_at_a_rate(eager: dict[str, Any]) -> None:
    for row in eager["written"]:
        assert len(row["text"]) == 20
        assert row["characters_per_s"] > 0


def test_sixteen_bit_activations_write_what_fp32_writes(eager: dict[str, Any]) -> None:
    texts = {row["activation"]: row["text"] for row in eager["written"]}
    assert texts["int16"] == texts["fp32"]


def test_plot_is_a_picture(eager: dict[str, Any]) -> None:
    assert eager["picture"].startswith(PNG)


def test_seeds_are_compared_one_by_one(tmp_path: Path) -> None:
    made = trained(tmp_path, "--no-compile", "--steps", "2", "--seeds", "2", "--seed", "7")
    assert [(row["weights"], row["seed"]) for row in made["trained"]] == [
        ("fp32", 7), ("int8", 7), ("fp32", 8), ("int8", 8)
    ]  # fmt: skip
    held_out = [row["held_out"] for row in made["trained"]]
    assert made["ratios"] == [held_out[1] / held_out[0], held_out[3] / held_out[2]]


@pytest.mark.slow
def test_compiled_training_ends_within_two_percent_too(tmp_path: Path) -> None:
    made = trained(tmp_path)
    assert [row["mode"] for row in made["trained"]] == ["eager"] * 2 + ["compiled"] * 2
    assert len(made["ratios"]) == 2
    assert max(abs(ratio - 1) for ratio in made["ratios"]) < 0.02
    fp32_eager, fp32_compiled = (row["held_out"] for row in made["trained"][::2])
    assert fp32_compiled == pytest.approx(fp32_eager, rel=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "0"), "have to be 1 or more"),
        (("--seeds", "-1"), "have to be 1 or more"),
        (("--characters", "0"), "have to be 1 or more"),
        (("--plot", "no/such/folder.png"), "in a folder that exists"),
        (("--plot", "losses.jpeg"), "ends in .png"),
        (("--rounding", "up"), "invalid choice"),
        (("--width", "130"), "multiple of 4"),
    ],
)
def test_bad_options_are_refused_at_once(
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: the next test shows what another does with the status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(GPT), *arguments])
    monkeypatch.syspath_prepend(GPT.parent)  # as Python does for a script
    with pytest.raises(SystemExit) as exit_info:
        runpy.run_path(str(GPT), run_name="__main__")
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_compiler_it_says_what_to_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    ran = run(GPT, folder=tmp_path)
    assert ran.returncode == 2
    assert "--no-compile" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_help_lists_the_options_and_those_of_the_readme(tmp_path: Path) -> None:
    ran = run(GPT, "--help", folder=tmp_path)
    assert ran.returncode == 0
    for option in (
        "--steps",
        "--seed ",
        "--seeds",
        "--characters",
        "--width",
        "--rounding",
        "--no-compile",
        "--json",
        "--plot",
    ):
        assert option in ran.stdout
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    used = {word for line in re.findall(r"^python examples/char_gpt.py .*", readme, re.MULTILINE)
            for word in line.partition("#")[0].split() if word.startswith("--")}  # fmt: skip
    assert len(used) >= 5
    assert [option for option in used if option not in ran.stdout] == []
