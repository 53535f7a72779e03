"""`conformance_tests`: what a user's test file with that one line shows, run by pytest in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lamina import LoggingTensor
from lamina.conformance import conformance_tests

MY_TESTS = """
import lamina
from lamina.conformance import conformance_tests


class Loud(lamina.LoggingTensor):
    def __repr__(self):
        return "values" * 1000


options = {"only": ["repr_is_short", "hash_is_identity", "equality_is_computed", "format_strings_work"]}
test_good = conformance_tests(lamina.LoggingTensor, **options)
test_loud = conformance_tests(Loud, **options, skip={"equality_is_computed": "for speed"})
test_known = conformance_tests(Loud, lambda plain: Loud(plain), **options, limits={"repr_is_short": "issue 7"})
test_unmade = conformance_tests(3, only=["repr_is_short"])
"""


def run(folder: Path, *arguments: str, source: str = MY_TESTS) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-rA", *arguments, "test_mine.py"]
    env = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=500, env=env)


@pytest.mark.parametrize("arguments", [("-s", "-W", "error"), ("-n", "2")], ids=["one", "xdist"])
def test_each_check_is_a_test_with_a_readable_id(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = run(tmp_path, *arguments)
    assert ran.returncode == 1
    outcomes = {
        "PASSED test_mine.py::test_good[printing/repr_is_short]",
        "PASSED test_mine.py::test_good[printing/equality_is_computed]",
        "PASSED test_mine.py::test_loud[printing/hash_is_identity]",
        "PASSED test_mine.py::test_known[printing/format_strings_work]",
        "XFAIL test_mine.py::test_known[printing/repr_is_short] - issue 7",
    }
    assert outcomes <= set(ran.stdout.splitlines())
    failure = (
        r"FAILED test_mine.py::test_loud\[printing/repr_is_short\] - (Failed: )?Loud, printing/repr_is_short \(repr "
    )
    assert re.search(failure, ran.stdout)
    assert "left out: for speed" in ran.stdout
    assert "2 failed, 9 passed, 1 skipped, 1 xfailed" in ran.stdout


def test_a_failure_is_the_call_and_no_traceback(tmp_path: Path) -> None:
    ran = run(tmp_path, "-k", "test_loud or test_unmade")
    _, _, failures = ran.stdout.partition("= FAILURES =")
    text, _, _ = failures.partition("= PASSES =")
    assert "Loud, printing/repr_is_short (repr recurses, raises or prints all values)\nrepr(" in text
    assert "  expected a short text that names Loud\n  got      valuesvalues" in text
    assert "3 is no subclass of torch.Tensor" in text
    assert "Traceback" not in text
    assert "pytest_entry.py" not in text
    assert len(text.splitlines()) < 15


def test_a_test_can_be_picked_by_the_name_of_its_check(tmp_path: Path) -> None:
    assert "1 passed, 12 deselected" in run(tmp_path, "-k", "test_good and hash_is_identity").stdout


@pytest.mark.parametrize("argument", ["only", "skip", "limits"])
def test_a_wrong_name_fails_when_tests_are_collected(tmp_path: Path, argument: str) -> None:
    value = ["repr_is_shrot"] if argument == "only" else {"repr_is_shrot": "why"}
    line = f"test_it = lamina.conformance.conformance_tests(lamina.LoggingTensor, {argument}={value})"
    ran = run(tmp_path, source=f"import lamina\n{line}\n")
    assert ran.returncode == 2
    assert "there is no check or group 'repr_is_shrot'; near: repr_is_short" in ran.stdout


def test_a_wrong_argument_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="decoed"):
        conformance_tests(LoggingTensor, decoed=None)


test_lamina_itself = conformance_tests(LoggingTensor, only=["repr_is_short"])
