"""The process in which instructions are counted: builds variants, and runs their calls where a tool counts them.

Started by `lamina.bench.instructions`: `python -m lamina.bench.counted WAY MODULE:FUNCTION CALLS NAME ARGUMENT...`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import repeat

import torch

from .machine import quiet_machine
from .named import find_object
from .stopwatch import Variant

CALLGRIND, PERF = "callgrind", "perf"
WARMING = 20


def build(source: str, arguments: Sequence[str]) -> list[Variant]:
    """The variants that `module:function` gives for the arguments."""
    found: list[Variant] = find_object(source)(*arguments)
    return found


def run(variant: Variant, calls: int) -> None:
    """So many calls."""
    function, args = variant.function, variant.args
    for _ in repeat(None, calls):
        function(*args)


def under_callgrind(variants: Sequence[Variant], calls: int) -> None:
    """Two dumps for each variant: of so many calls, and of twice as many.

    Valgrind starts without counting: so importing torch takes half a minute and not two.
    """
    for variant in variants:
        with variant.scope():
            run(variant, WARMING)
    started = ["callgrind_control", "--instr=on", str(os.getpid())]
    subprocess.run(started, check=True, stdout=subprocess.DEVNULL)
    for variant in variants:
        with variant.scope():
            _dump(variant, WARMING)  # the first calls under the counter run code that it has not seen yet
            _dump(variant, calls)
            _dump(variant, 2 * calls)
            gc.collect()


def _dump(variant: Variant, calls: int) -> None:
    torch._C._valgrind_toggle()
    run(variant, calls)
    torch._C._valgrind_toggle_and_dump_stats()


def main(arguments: Sequence[str]) -> int:
    """Count: all variants in this process for callgrind, so many calls of the one named for perf."""
    way, source, calls, name, *others = arguments
    variants = build(source, others)
    with quiet_machine():
        if way == CALLGRIND:
            under_callgrind(variants, int(calls))
        else:
            chosen = next(variant for variant in variants if variant.name == name)
            with chosen.scope():
                run(chosen, int(calls))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
