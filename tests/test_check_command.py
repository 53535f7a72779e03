"""`lamina check`: what it prints and writes, its exit status, how it answers bad input, Ctrl-C and a full disk."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
from command_line import module_here
from typer.testing import CliRunner, Result

import lamina.commands
from lamina.conformance import every_check

MY_TYPES = '''
import time
from pathlib import Path

import lamina
import torch
from lamina.conformance import check


class Good(lamina.WrapperTensor):
    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


class Loud(Good):
    """Its repr is not short."""

    def __repr__(self):
        return "no name" * 3000


class Raw(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __repr__(self):
        return "Raw(...)"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise ValueError("\\x1b[31mred\\x1b[0m")


class Slow(Good):
    def __hash__(self):
        Path("hangs").touch()
        time.sleep(1000)


not_a_class = 3
'''


def run(*arguments: str) -> Result:
    return CliRunner().invoke(lamina.commands.app, ["check", *arguments], env={"COLUMNS": "300", "NO_COLOR": "1"})


@pytest.fixture
def types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with tensor types in the current folder."""
    return module_here("types_of_the_check_command_test", MY_TYPES, tmp_path, monkeypatch)


def rows(output: str) -> dict[str, list[str]]:
    """Of the table, by check: the cells after the name."""
    found = re.findall(
        r"^ *(?:[a-z]+ +)?([a-z_]+)  +(pass|fail|known limit|not applicable) +([0-9.]+)$", output, re.MULTILINE
    )
    return {name: [status, seconds] for name, status, seconds in found}


def test_a_class_that_holds(types: str) -> None:
    result = run(f"{types}:Good", "--only", "repr_is_short", "--only", "equality_is_computed, format_strings_work")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split() == ["group", "check", "status", "seconds"]
    assert {name: status for name, (status, _) in rows(result.output).items()} == {
        "repr_is_short": "pass",
        "equality_is_computed": "pass",
        "format_strings_work": "pass",
    }
    assert result.output.endswith("\nGood (transparent): 3 pass, 0 fail, 0 known limit, 0 not applicable\n")


def test_a_class_that_does_not(types: str) -> None:
    result = run(f"{types}:Loud", "--only", "repr_is_short")
    assert result.exit_code == 1
    assert rows(result.output)["repr_is_short"][0] == "fail"
    assert "\nfail printing/repr_is_short: repr recurses, raises or prints all values\n  repr(" in result.output
    assert "  expected a short text that names Loud" in result.output


def test_a_known_limit_is_shown_with_its_reason(types: str) -> None:
    result = run(f"{types}:Good", "--only", "a_cast_parameter_keeps_its_marks")
    assert result.exit_code == 0
    assert "\nknown limit life/a_cast_parameter_keeps_its_marks: " in result.output
    assert result.output.partition("a_cast_parameter_keeps_its_marks: ")[2].splitlines()[1].startswith("  ")


def test_skip_leaves_out(types: str) -> None:
    result = run(f"{types}:Loud", "--only", "repr_is_short", "--skip", "repr_is_short=it is loud, = so what")
    assert result.exit_code == 0
    assert rows(result.output)["repr_is_short"] == ["not applicable", "0.00"]


def test_make_kind_and_rtol_are_handed_on(types: str) -> None:
    arguments = ("--make", f"{types}:Raw", "--kind", "representation", "--rtol", "0.1", "--jobs", "3", "--full")
    report = lamina.conformance.Report("Raw", "representation", [])
    with mock.patch("lamina.conformance.check_subclass", return_value=report) as checked:
        assert run(f"{types}:Raw", *arguments).exit_code == 1  # nothing ran
    raw = sys.modules[types].Raw
    given: dict[str, Any] = checked.call_args.kwargs
    assert (given["cls"], given["make"], given["kind"].value) == (raw, raw, "representation")
    assert (given["rtol"], given["jobs"], given["full"], given["only"], given["skip"]) == (0.1, 3, True, None, {})


def test_a_class_that_cannot_be_checked(types: str) -> None:
    result = run(f"{types}:Raw")
    assert result.exit_code == 1
    assert "Raw has no from_plain: pass make" in result.output


def test_control_characters_do_not_reach_the_terminal(types: str) -> None:
    result = run(f"{types}:Raw", "--make", f"{types}:Raw", "--only", "repr_tells_of_autograd")
    assert result.exit_code == 1
    assert "ValueError: ?[31mred?[0m" in result.output
    assert "\x1b" not in result.output


def test_json(types: str) -> None:
    result = run(f"{types}:Loud", "--json", "--only", "repr_is_short")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert (data["subject"], data["ok"], data["results"][0]["status"]) == ("Loud", False, "fail")


def test_junit(types: str, tmp_path: Path) -> None:
    result = run(f"{types}:Loud", "--junit", "found.xml", "--only", "repr_is_short")
    assert result.exit_code == 1
    suite = ET.parse(tmp_path / "found.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "1")
    assert [path.name for path in tmp_path.iterdir() if "xml" in path.name] == ["found.xml"]


def test_junit_that_cannot_be_written_is_one_line(types: str, tmp_path: Path) -> None:
    (tmp_path / "found.xml").write_text("older")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch.object(Path, "write_bytes", side_effect=full):
        result = run(f"{types}:Good", "--junit", "found.xml", "--only", "repr_is_short")
    assert result.exit_code == 1
    assert rows(result.output)["repr_is_short"][0] == "pass"
    assert "lamina check: can't write found.xml: No space left on device\n" in result.output
    assert (tmp_path / "found.xml").read_text() == "older"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a class, as module:Class, or give --list"),
        (["Good"], "'Good' is not of the form module:Class"),
        (["{types}:Godo"], "{types} has no Godo"),
        (["{types}:not_a_class"], "{types}:not_a_class is no class that derives from torch.Tensor, but 3"),
        (["torch:Tensor"], "torch:Tensor is no class that derives from torch.Tensor, but <class 'torch.Tensor'>"),
        (["{types}:Raw", "--make", "{types}:not_a_class"], "--make {types}:not_a_class is no function, but 3"),
        (["{types}:Raw", "--make", "{types}:nothing"], "{types} has no nothing"),
        (["{types}:Good", "--only", "repr_is_shrot"], "no check or group 'repr_is_shrot'; near: repr_is_short"),
        (["{types}:Good", "--skip", "repr_is_shrot=why"], "no check or group 'repr_is_shrot'; near: repr_is_short"),
        (["{types}:Good", "--skip", "repr_is_short"], "--skip repr_is_short: write it as NAME=REASON"),
        (["{types}:Good", "--skip", "repr_is_short="], "--skip repr_is_short=: write it as NAME=REASON"),
        (["{types}:Good", "--skip", "=why"], "--skip =why: write it as NAME=REASON"),
        (["{types}:Good", "--jobs", "0"], "--jobs"),
        (["{types}:Good", "--rtol", "-1"], "--rtol"),
        (["{types}:Good", "--kind", "opaque"], "--kind"),
        (["{types}:Good", "--junit", "nowhere/x.xml"], "--junit nowhere/x.xml: there is no folder"),
        (["{types}:Good", "--junit", "."], "--junit .: it is a folder"),
        (["{types}:Good", "--nope"], "--nope"),
    ],
)
def test_bad_usage(types: str, arguments: list[str], message: str) -> None:
    with mock.patch("lamina.conformance.check_subclass", side_effect=AssertionError("it was run")):
        result = run(*(each.format(types=types) for each in arguments))
    assert result.exit_code == 2
    assert message.format(types=types) in result.output
    assert "Traceback" not in result.output


def test_list_says_what_each_check_checks() -> None:
    result = run("--list")
    assert result.exit_code == 0
    for each in every_check():
        assert f"\n  {each.name}" in result.output
        assert f"    {' '.join(each.text.split())}\n" in result.output
        assert f"    reported: {each.reported}\n" in result.output


def start(types: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lamina", "check", *(each.format(types=types) for each in arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, start_new_session=True, **options)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about in 60 s")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_shows_what_has_ended(types: str, tmp_path: Path, number: int, status: int) -> None:
    only = ("--only", "repr_is_short,format_strings_work,hash_is_identity")
    arguments = ("{types}:Slow", *only, "--jobs", "1", "--junit", "found.xml", "--json")
    with start(types, *arguments, stderr=subprocess.PIPE) as ran:
        wait_until((tmp_path / "hangs").exists)
        (hanging,) = children(ran.pid)
        os.killpg(ran.pid, number)
        out, err = ran.communicate(timeout=60)
    assert ran.returncode == status, err
    assert not Path(f"/proc/{hanging}").exists()
    assert not (tmp_path / "found.xml").exists()
    assert "Traceback" not in err
    if number == signal.SIGINT:
        data = json.loads(out)
        assert (data["complete"], data["ok"]) == (False, False)
        assert [each["name"] for each in data["results"]] == ["repr_is_short", "format_strings_work"]


def test_a_bar_is_on_a_terminal_alone(types: str) -> None:
    arguments = ("{types}:Good", "--only", "repr_is_short")
    with start(types, *arguments, stderr=subprocess.PIPE) as ran:
        out, err = ran.communicate(timeout=120)
    assert (err, ran.returncode) == ("", 0)
    ours, theirs = pty.openpty()
    for more, shown in (((), True), (("--json",), False)):
        with start(types, *arguments, *more, stderr=theirs) as ran:
            out, _ = ran.communicate(timeout=120)
        os.write(theirs, b"end")
        text = b""
        while not text.endswith(b"end"):
            text += os.read(ours, 1 << 16)
        assert (b"printing/repr_is_short" in text and b"left" in text) is shown
        assert ran.returncode == 0
        assert "repr_is_short" in out
        assert "left" not in out
    os.close(ours)
    os.close(theirs)
