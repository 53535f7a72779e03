"""Instructions instead of time: a figure that does not depend on the machine's mood.

A process of its own runs each variant N and 2N times; the difference, over N, is what a call costs. Counted by `perf
stat` where the processor's counter can be read (virtual machines often hide it), by Valgrind's callgrind otherwise,
whose processor is an emulated one without AVX-512. torch's `Timer.collect_callgrind` counts the same, but starts a
process for each statement and counts the import of torch in each, three minutes a figure; here one process does all,
starts to count when all is built, and uses torch's own marks for callgrind.

Variants are named by "module:function", so that the process can build them itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .counted import CALLGRIND, PERF, build

CALLS = {CALLGRIND: 200, PERF: 100_000}
EVENT = "instructions:u"
DUMPS_PER_VARIANT = 3
SAME_EACH_TIME = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


class NoCounterError(RuntimeError):
    """Nothing on this machine counts instructions."""


class CountingError(RuntimeError):
    """The process in which instructions were to be counted failed, or gave no count."""


@dataclass(frozen=True)
class Counts:
    """Instructions per call, by variant, and what counted them."""

    tool: str
    calls: int
    instructions: dict[str, float]

    def ratio(self, name: str, baseline: str) -> float:
        """`name` over `baseline`."""
        return self.instructions[name] / self.instructions[baseline]


def find_tool() -> str:
    """The better tool that works here: perf or callgrind. A NoCounterError says what to install."""
    if shutil.which("perf") and _perf_counts():
        return PERF
    if shutil.which("valgrind") and shutil.which("callgrind_control"):
        return CALLGRIND
    found = "perf is here, but the processor's counter cannot be read" if shutil.which("perf") else "perf is not here"
    raise NoCounterError(
        f"instructions cannot be counted: {found}, and valgrind with callgrind_control is not here either. Install "
        "valgrind, or allow perf to count (kernel.perf_event_paranoid of 2 or less, on a machine that has counters)."
    )


def _perf_counts() -> bool:
    with TemporaryDirectory(prefix="lamina-perf-") as folder:
        try:
            return _perf_stat(["true"], Path(folder)) > 0
        except CountingError:
            return False


def count_instructions(source: str, arguments: Sequence[str] = (), calls: int | None = None) -> Counts:
    """Count for each variant that the function of `source`, "module:function", gives for the texts of `arguments`.

    Raises NoCounterError where no tool is there, and CountingError where the counting process failed.
    """
    tool = find_tool()
    count = _by_perf if tool == PERF else _by_callgrind
    names = [variant.name for variant in build(source, arguments)]
    chosen = calls or CALLS[tool]
    with TemporaryDirectory(prefix="lamina-instructions-") as folder:
        return Counts(tool, chosen, count(source, arguments, names, chosen, Path(folder)))


def _by_perf(source: str, arguments: Sequence[str], names: list[str], calls: int, folder: Path) -> dict[str, float]:
    def total(name: str, times: int) -> int:
        return _perf_stat(_command(PERF, source, times, name, *arguments), folder)

    return {name: (total(name, 2 * calls) - total(name, calls)) / calls for name in names}


def _perf_stat(command: Sequence[str], folder: Path) -> int:
    """Instructions of a whole process."""
    report = folder / "perf.csv"
    _run(["perf", "stat", "-x,", "-e", EVENT, "-o", str(report), "--", *command])
    for line in report.read_text().splitlines():
        if EVENT in line and line.partition(",")[0].isdecimal():
            return int(line.partition(",")[0])
    raise CountingError(f"perf stat gave no count of {EVENT}: {report.read_text().strip()}")


def _by_callgrind(
    source: str, arguments: Sequence[str], names: list[str], calls: int, folder: Path
) -> dict[str, float]:
    options = [f"--callgrind-out-file={folder / 'out'}", "--instr-atstart=no", "--collect-atstart=no"]
    _run(["valgrind", "--tool=callgrind", *options, *_command(CALLGRIND, source, calls, "", *arguments)])
    # The last file, without a number, is of what came after the last mark: nothing.
    dumps = sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    if len(dumps) != DUMPS_PER_VARIANT * len(names):
        raise CountingError(f"callgrind made {len(dumps)} dumps for {len(names)} variants of {source}.")
    totals = [_total(path) for path in dumps]
    once, twice = totals[1::DUMPS_PER_VARIANT], totals[2::DUMPS_PER_VARIANT]
    return {name: (more - less) / calls for name, less, more in zip(names, once, twice, strict=True)}


def _total(dump: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", dump.read_text(), re.MULTILINE)
    if found is None:
        raise CountingError(f"callgrind's {dump.name} has no total.")
    return int(found[1])


def _command(way: str, source: str, calls: int, name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"{__package__}.counted", way, source, str(calls), name, *arguments]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, env={**os.environ, **SAME_EACH_TIME}, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-5:]
        raise CountingError("\n".join([f"{command[0]} ended with status {done.returncode}:", *lines]))
