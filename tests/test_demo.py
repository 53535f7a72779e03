"""The demo: what it prints and writes, that its models are the same ones, and how it ends when it can't go on."""

from __future__ import annotations

import gc
import io
import json
import logging
import math
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lamina.commands
import lamina.demo
from lamina.bench import compiler, demo, demo_files, demo_report
from lamina.bench.compiler import COMPILED, EAGER
from lamina.bench.demo import DemoError, Plan, run, train
from lamina.bench.demo_results import DemoResults
from lamina.bench.demo_task import BATCH, Digits, load, make_model
from lamina.bench.demo_trainee import INT8, PLAIN, WRAPPINGS, Trainee, Wrapping
from lamina.bench.timing import Settings

NAMES = [wrapping.name for wrapping in WRAPPINGS]
JSON, PNG = "lamina-demo.json", "lamina-demo.png"
TINY = Plan(epochs=2, not_compiled="a test", settings=Settings(rounds=2, loop_ns=1, warmup_ns=1, refuse_above=None))
WEIGHTS = 64 * 128 + 128 * 128 + 128 * 10
ROWS = 128 + 128 + 10


def quiet(doing: str, by: int) -> None:
    """A progress that nobody watches."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One quick run as on the command line: its folder, which it had to make, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "made" / "by the demo"
    with redirect_stdout(io.StringIO()) as printed:
        lamina.demo.run(quick=True, json=False, out=folder, seed=3)
    return folder, printed.getvalue()


@pytest.fixture
def data(quick: tuple[Path, str]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((quick[0] / JSON).read_text())
    return read


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does next to nothing."""
    monkeypatch.setattr(Plan, "of", lambda **_: replace(TINY, wrappings=WRAPPINGS[:2]))


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)):
        yield value


def demo_files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_quick_demo_leaves_two_files(quick: tuple[Path, str]) -> None:
    assert demo_files_in(quick[0]) == [JSON, PNG]


def test_json_has_every_model_and_finite_numbers_only(data: dict[str, Any]) -> None:
    assert (data["schema"], data["demo"], data["seed"]) == (1, "digits", 3)
    assert [(each["wrapping"], each["mode"]) for each in data["outcomes"]] == [(name, EAGER) for name in NAMES]
    assert data["not_compiled"] == "--quick leaves it out."
    assert data["steps"] == data["epochs"] * (data["train_images"] // BATCH)
    assert all(math.isfinite(number) for number in numbers(data))
    for each in data["outcomes"]:
        assert 0.85 < each["accuracy"] < 1
        assert list(each["ops"]) == ["forward", "backward", "optimizer"]
        assert min(each["ops"].values()) > 0
        assert each["step_ns"]["median"] > 0
        assert (each["compilations"], each["compile_s"]) == (0, 0)


def test_transparent_layers_change_no_number(data: dict[str, Any]) -> None:
    outcomes = {each["wrapping"]: each for each in data["outcomes"]}
    references = {name: each["same_as"] for name, each in outcomes.items() if each["same_as"]}
    assert references == {NAMES[1]: PLAIN, NAMES[2]: PLAIN, NAMES[4]: INT8}
    for name, reference in references.items():
        assert outcomes[name]["difference"] is None
        for same in ("accuracy", "loss", "weight_bytes"):
            assert outcomes[name][same] == outcomes[reference][same]
        assert outcomes[name]["ops"]["forward"] == outcomes[reference]["ops"]["forward"]
    assert outcomes[PLAIN]["loss"] != outcomes[INT8]["loss"]


def test_weights_take_their_leaves_bytes(data: dict[str, Any]) -> None:
    taken = {each["wrapping"]: each["weight_bytes"] for each in data["outcomes"]}
    assert taken[PLAIN] == 4 * WEIGHTS
    assert taken[INT8] == WEIGHTS + 4 * ROWS


def test_layer_cost_has_slopes_beside_the_hand_written_wrapper(data: dict[str, Any]) -> None:
    cost = data["layer_cost"]
    assert cost["gaps"] == []
    slopes = {(each["op"], each["subject"]): each for each in cost["slopes"]}
    for op in ("add", "linear", "t", "detach", "add_"):
        ours = slopes[op, "lamina LoggingTensor"]
        assert ours["layers"] == [0, 1, 2, 3]
        assert ours["to_hand_written"]["median"] > 0
        assert (op, "hand-written") in slopes


def test_picture_is_a_png_of_its_size(quick: tuple[Path, str]) -> None:
    content = (quick[0] / PNG).read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", content[16:24]) == (1560, 624)
    assert content.endswith(b"IEND\xaeB`\x82")


def test_table_names_models_ops_files_and_what_is_missing(quick: tuple[Path, str], data: dict[str, Any]) -> None:
    folder, printed = quick
    rows = {line.strip().split("  ")[0]: line for line in reversed(printed.splitlines())}
    for each in data["outcomes"]:
        row = rows[each["wrapping"]]
        assert f"{each['accuracy']:.1%}" in row
        assert f"{each['weight_bytes']:,}" in row
        assert f"{each['ratio_to_plain']['median']:.2f} ±" in row
        assert "/".join(map(str, each["ops"].values())) in row
        assert ("yes" in row.split()) == bool(each["same_as"])
    assert {"add", "linear", "t", "detach", "add_"} <= set(rows)
    assert "eager only, nothing was compiled: --quick leaves it out." in printed
    assert str(folder / JSON) in printed


@pytest.mark.usefixtures("tiny")
def test_json_option_prints_the_file_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(quick=False, json=True, out=tmp_path, seed=0)
    captured = capfd.readouterr()
    assert captured.out == (tmp_path / JSON).read_text()
    assert captured.err == ""


@pytest.mark.usefixtures("tiny")
def test_run_restores_threads_and_collector(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(quick=False, json=True, out=tmp_path, seed=0)
        assert (torch.get_num_threads(), gc.isenabled()) == (2, True)
    finally:
        torch.set_num_threads(before)


def test_same_seed_same_split_and_weights() -> None:
    first, again, other = load(1), load(1), load(2)
    assert torch.equal(first.train_images, again.train_images)
    assert not torch.equal(first.train_images, other.train_images)
    assert torch.equal(make_model(1)[0].weight, make_model(1)[0].weight)
    assert not torch.equal(make_model(1)[0].weight, make_model(2)[0].weight)


def test_split_is_stratified_and_scaled() -> None:
    digits = load(0)
    shares = [torch.bincount(labels) / len(labels) for labels in (digits.train_labels, digits.test_labels)]
    torch.testing.assert_close(shares[0], shares[1], atol=0.002, rtol=0)
    assert (digits.train_images.min(), digits.train_images.max()) == (0, 1)
    assert len(digits.test_labels) == pytest.approx(len(digits.train_labels) / 3, abs=1)


def test_every_epoch_has_another_order_of_full_batches() -> None:
    digits = load(0)
    batches = list(digits.batches(2, seed=0))
    assert len(batches) == 2 * digits.batches_per_epoch
    assert {images.shape for images, _ in batches} == {(BATCH, 64)}
    assert not torch.equal(batches[0][0], batches[digits.batches_per_epoch][0])


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_out_of_range_is_refused(tmp_path: Path, seed: int) -> None:
    with pytest.raises(SystemExit, match=rf"^lamina demo: --seed has to be in 0 to 2\*\*32 - 1, got {seed}$"):
        lamina.demo.run(quick=True, json=False, out=tmp_path, seed=seed)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_folder_that_cannot_be_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    monkeypatch.setattr(demo, "load", None)  # not reached
    out = tmp_path / "file" / below
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(lamina.commands.app, ["demo", "--out", str(out)])
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code != 0
    with pytest.raises(DemoError, match=r"can't write to .*/file.*: (File exists|Not a directory)"):
        run(quick=True, json=False, out=out, seed=0)


def test_folder_without_permission_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(dir: Path) -> None:  # noqa: A002 - the name is tempfile's
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(demo, "load", None)  # not reached
    monkeypatch.setattr(tempfile, "TemporaryFile", forbidden)
    with pytest.raises(DemoError, match=r"can't write to .*: Permission denied\. Name another folder with --out"):
        run(quick=True, json=False, out=tmp_path, seed=0)


@pytest.mark.usefixtures("tiny")
def test_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / JSON).write_text("before")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DemoError, match="No space left on device"):
        run(quick=False, json=True, out=tmp_path, seed=0)
    assert demo_files_in(tmp_path) == [JSON]
    assert (tmp_path / JSON).read_text() == "before"


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("owner", "name"), [(Trainee, "step"), (demo_files, "as_png")])
def test_interrupt_ends_the_command_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupt)
    result = CliRunner().invoke(lamina.commands.app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert demo_files_in(tmp_path) == []
    assert gc.isenabled()


def test_layer_that_changes_a_number_fails_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = Wrapping("not so transparent", WRAPPINGS[3].wrap, same_as=PLAIN)
    monkeypatch.setattr(Plan, "of", lambda **_: replace(TINY, wrappings=(WRAPPINGS[0], lossy)))
    with pytest.raises(DemoError, match=r"changed a number\. not so transparent: the loss of step 0"):
        run(quick=False, json=True, out=tmp_path, seed=0)
    assert demo_files_in(tmp_path) == [JSON, PNG]


def test_difference_of_weights_alone_is_found() -> None:
    trainees = [Trainee(WRAPPINGS[0], compiled=False, seed=0) for _ in range(2)]
    assert trainees[0].difference(trainees[1]) is None
    with torch.no_grad():
        trainees[1].model[4].bias[3] *= 1 + 1e-6
    assert trainees[0].difference(trainees[1]) == "the trained 4.bias"


def test_without_a_compiler_the_demo_is_eager_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("no-such-compiler",)}):
        plan = Plan.of(quick=False, seed=0)
    assert plan.not_compiled is not None
    assert plan.not_compiled.startswith("torch.compile needs a C++ compiler and found none.")
    assert [trainee.mode for trainee in plan.trainees()] == [EAGER] * len(NAMES)
    monkeypatch.setattr(demo, "missing_compiler", lambda: None)
    assert len(Plan.of(quick=False, seed=0).trainees()) == 2 * len(NAMES)


def test_cache_folder_and_log_levels_are_restored_after_an_error() -> None:
    levels = [logging.getLogger(name).level for name in compiler.CHATTER]
    folders = set(Path(tempfile.gettempdir()).glob("lamina-compiled-*"))

    def interrupted() -> None:
        with compiler.empty_cache():
            assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent.name.startswith("lamina-compiled-")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert set(Path(tempfile.gettempdir()).glob("lamina-compiled-*")) <= folders
    assert [logging.getLogger(name).level for name in compiler.CHATTER] == levels


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load(0)


@pytest.mark.slow
def test_compiled_half(digits: Digits, capsys: pytest.CaptureFixture[str]) -> None:
    results: DemoResults = train(replace(TINY, not_compiled=None), digits, quiet)
    assert [(each.wrapping, each.mode) for each in results.outcomes] == [
        (name, mode) for mode in (EAGER, COMPILED) for name in NAMES
    ]
    for each in results.outcomes:
        assert each.difference is None
        if each.mode == COMPILED:
            assert each.compilations == 3  # forward with backward; the optimizer before it has momenta, and after
            assert each.compile_s > 0
            assert each.ops["optimizer"] == 0
            eager = results.find(each.wrapping, EAGER)
            assert eager is not None
            assert each.loss == pytest.approx(eager.loss, rel=0.1)
            assert each.weight_bytes == eager.weight_bytes
    demo_report.print_results(results, [])
    printed = capsys.readouterr()
    assert "compiled: n graphs, by Inductor" in printed.out
    assert printed.err == ""
