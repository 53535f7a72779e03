"""The README's Python runs, and what it says of files and commands is there."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lamina
from lamina.conformance import every_check

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_python_blocks_run_in_order() -> None:
    source = "\n".join(blocks("python"))
    assert source.count("assert ") >= 6
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "op table of Diagonal" in done.stdout
    assert "aten::addmm" in done.stdout


def test_every_public_name_it_uses_exists() -> None:
    for name in re.findall(r"\blamina\.([A-Za-z_]\w*)", "\n".join(blocks("python")) + TEXT):
        assert hasattr(lamina, name) or name in ("modes", "subclasses", "bench"), name


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_known_limits_of_the_conformance_kit_are_listed() -> None:
    listed = set(re.findall(r"^- `(\w+)`: ", section("Check a type"), re.MULTILINE))
    checks = every_check()
    known = {each.name for each in checks if "KnownLimit(" in inspect.getsource(each.function)}
    assert listed == {name for name in known if not name.startswith("samples_")}
    assert {each.name for each in checks} >= known


def test_every_check_that_it_names_exists() -> None:
    names = {name for each in every_check() for name in (each.name, each.group)}
    text = section("Check a type")
    for name in re.findall(r'"(\w+)": "|only=\["(\w+)", "(\w+)"\]|report\["(\w+)"\]|/(\w+)\]', text):
        assert set(filter(None, name)) <= names, name


@pytest.mark.parametrize("target", re.findall(r"`?make (\w+)", TEXT))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_commands_exist() -> None:
    command = shutil.which("lamina", path=str(Path(sys.executable).parent))
    assert command is not None
    for line in (line for block in blocks("bash") for line in block.splitlines() if line.startswith("lamina ")):
        words = line.partition("#")[0].partition("[")[0].split()
        name = words[1:3] if words[1] == "bench" else words[1:2]
        help_text = subprocess.run([command, *name, "--help"], capture_output=True, text=True, check=True).stdout
        for option in re.findall(r"--[a-z-]+", line):
            assert option in help_text, line
    table = ["table", "lamina:ScaledInt8Tensor", "aten.mm.default"]
    assert "products.py" in subprocess.run([command, *table], capture_output=True, text=True, check=True).stdout


def test_paths_exist() -> None:
    for path in re.findall(r"`((?:subclasses|tests|bench|front|modes|examples)/[\w/.]*)`", TEXT):
        assert (ROOT / path).exists(), path
