"""The machine: what a figure depends on besides the code, and how it is kept quiet while a clock runs."""

from __future__ import annotations

import gc
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
CPUINFO = Path("/proc/cpuinfo")
UNKNOWN = "unknown"


@contextmanager
def quiet_machine(threads: int = 1) -> Iterator[None]:
    """One thread and no garbage collection; both put back afterwards, whatever happens inside."""
    threads_before, gc_before = torch.get_num_threads(), gc.isenabled()
    try:
        gc.collect()
        torch.set_num_threads(threads)
        gc.disable()
        yield
    finally:
        torch.set_num_threads(threads_before)
        if gc_before:
            gc.enable()


def describe_machine() -> dict[str, str | int]:
    """Machine, versions, threads, CPU capability, and how busy it is: the load of 1, 5 and 15 minutes."""
    return {
        "machine": platform.machine(),
        "processor": _processor_name(),
        "cores": os.cpu_count() or 0,
        "system": platform.platform(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "timed_with_threads": 1,
        "intraop_threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "load_average": _load_average(),
        "frequency_governor": _first_line(GOVERNOR) or UNKNOWN,
        "cuda_device": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def _processor_name() -> str:
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or UNKNOWN


def _load_average() -> str:
    try:
        return " ".join(f"{load:.2f}" for load in os.getloadavg())
    except OSError:  # not every system keeps one
        return UNKNOWN


def _first_line(path: Path) -> str:
    """A file's first line; nothing where it cannot be read: virtual machines show no governor."""
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return ""
