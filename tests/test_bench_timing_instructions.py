"""Counting instructions: which tool is taken, what it is asked, how counts are made of it. The tools are stand-ins."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lamina.bench import counted, counted_layers, layers
from lamina.bench.instructions import CountingError, Counts, NoCounterError, count_instructions, find_tool
from lamina.bench.named import NameNotFoundError
from lamina.bench.stopwatch import Variant

SOURCE = f"{__name__}:variants"
COSTS = {"cheap": 10, "dear": 250}

# Both pretend that a process takes some instructions anyway, and a variant so many for each call.
PERF = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
report=$2; shift 3
if [ "$1" = true ]; then echo "TRUE,,instructions:u,1,100.00,," > "$report"; exit 0; fi
shift 4  # python -m lamina.bench.counted perf
case $3 in cheap) cost=10;; dear) cost=250;; esac
printf '# started\\n\\n%s,,instructions:u,1,100.00,,\\n' $((123456 + cost * $2)) > "$report"
"""
VALGRIND = """#!/bin/sh
for argument; do case $argument in --callgrind-out-file=*) out=${argument#*=};; esac; done
while [ "$1" != callgrind ]; do shift; done
number=7  # the tenth comes after the ninth
for cost in 10 250; do
  for calls in 20 $3 $((2 * $3)); do
    number=$((number + 1))
    [ $number -gt MOST ] || printf 'events: Ir\\nsummary: %s\\n' $((777 + cost * calls)) > "$out.$number"
  done
done
touch "$out"
echo "==1== it ends" >&2
exit STATUS
"""


def variants(*names: str) -> list[Variant]:
    return [Variant(name, int) for name in names or COSTS]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a stand-in where commands are found; nothing but the shell's own commands is there else."""
    for name in ("sh", "touch", "true"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))

    def add(name: str, script: str = "#!/bin/sh\n") -> None:
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)

    return add


def install_valgrind(install: Callable[..., None], status: int = 0, most: int = 99) -> None:
    install("valgrind", VALGRIND.replace("STATUS", str(status)).replace("MOST", str(most)))
    install("callgrind_control")


@pytest.mark.usefixtures("install")
def test_without_a_tool_the_error_says_what_to_install() -> None:
    with pytest.raises(NoCounterError, match=r"perf is not here.* Install valgrind"):
        count_instructions(SOURCE)


def test_perf_that_cannot_count_is_passed_over(install: Callable[..., None]) -> None:
    install("perf", PERF.replace("TRUE", "<not supported>"))
    with pytest.raises(NoCounterError, match="perf is here, but the processor's counter cannot be read"):
        find_tool()
    install_valgrind(install)
    assert find_tool() == "callgrind"


def test_perf_that_counts_is_taken_first(install: Callable[..., None]) -> None:
    install("perf", PERF.replace("TRUE", "4711"))
    install_valgrind(install)
    assert count_instructions(SOURCE) == Counts("perf", 100_000, COSTS)


def test_callgrind_counts_from_the_dumps_of_once_and_twice_the_calls(install: Callable[..., None]) -> None:
    install_valgrind(install)
    found = count_instructions(SOURCE, calls=30)
    assert found == Counts("callgrind", 30, COSTS)
    assert found.ratio("dear", "cheap") == 25


@pytest.mark.parametrize(
    ("status", "most", "text"), [(3, 99, "status 3:\n==1== it ends"), (0, 12, "made 5 dumps for 2 variants")]
)
def test_a_process_that_fails_is_an_error(install: Callable[..., None], status: int, most: int, text: str) -> None:
    install_valgrind(install, status, most)
    with pytest.raises(CountingError, match=text):
        count_instructions(SOURCE)


def test_a_source_that_is_not_there_is_refused_first(install: Callable[..., None]) -> None:
    install_valgrind(install, status=3)
    with pytest.raises(NameNotFoundError, match="has no absent"):
        count_instructions(f"{__name__}:absent")


def test_the_process_counts_once_and_twice_the_calls_after_warming(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: said.append(command))
    monkeypatch.setattr(torch._C, "_valgrind_toggle", lambda: said.append("on"))
    monkeypatch.setattr(torch._C, "_valgrind_toggle_and_dump_stats", lambda: said.append("off"))
    monkeypatch.setattr(counted, "find_object", lambda _: lambda *names: [Variant(n, said.append, (n,)) for n in names])
    assert counted.main(["callgrind", "any:thing", "3", "", "a", "b"]) == 0
    warm = counted.WARMING
    started = ["callgrind_control", "--instr=on", str(os.getpid())]
    a_variant = [item for calls in (warm, 3, 6) for item in ("on", *["x"] * calls, "off")]
    expected = ["a"] * warm + ["b"] * warm + [started]
    expected += [name if item == "x" else item for name in "ab" for item in a_variant]
    assert said == expected
    assert gc.isenabled()


def test_the_process_runs_the_one_that_perf_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(counted, "find_object", lambda _: lambda *names: [Variant(n, said.append, (n,)) for n in names])
    assert counted.main(["perf", "any:thing", "5", "b", "a", "b"]) == 0
    assert said == ["b"] * 5


# The command


def test_layers_can_be_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, ...]] = []

    def count(source: str, arguments: list[str]) -> Counts:
        names = [variant.name for variant in counted.build(source, arguments)]
        asked.append((source, *arguments))
        return Counts("callgrind", 1, {name: 100.0 * (number + 1) for number, name in enumerate(names)})

    monkeypatch.setattr(counted_layers, "count_instructions", count)
    assert layers.main(["--instructions", "--op", "add", "--layers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert asked == [("lamina.bench.counted_layers:variants", "add", "1")]
    assert [(each["subject"], each["instructions"], each["to_plain"]) for each in found["figures"]] == [
        ("plain", 100, 1),
        ("hand-written", 200, 2),
        ("lamina Transparent", 300, 3),
        ("lamina LoggingTensor", 400, 4),
    ]
    assert found["figures"][2]["to_hand_written"] == 1.5
    assert layers.main(["--instructions", "--op", "add", "--class", "lamina:LoggingTensor"]) == 0
    assert asked[1][3:] == ("lamina:LoggingTensor", "", "")
    assert "instructions a call" in capsys.readouterr().out


@pytest.mark.usefixtures("install")
def test_the_command_without_a_tool_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["--instructions", "--op", "add", "--layers", "1"]) == 2
    assert "instructions cannot be counted" in capsys.readouterr().err
