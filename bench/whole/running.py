"""Runs the benches one after the other, and keeps the file of results whole and up to date after each."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import lamina

from ..record import SCHEMA
from ..timing import describe_machine
from ..trials import reason_of
from ..whole_file import write_whole
from .bench import Asked, Bench, Found, Stretch, Tell
from .promises import all_budgets


@dataclass
class Whole:
    """What all benches found so far. `stopped` says why the rest was not measured; `complete` that all of it was."""

    machine: dict[str, Any]
    asked: Asked
    date: str = field(default_factory=lambda: date.today().isoformat())
    found: dict[str, Found] = field(default_factory=dict)
    complete: bool = False
    stopped: str | None = None

    @property
    def failed(self) -> list[str]:
        """The benches that raised."""
        return [name for name, each in self.found.items() if "error" in each.data]

    @property
    def budgets(self) -> list[dict[str, Any]]:
        """All budgets as plain data, each with its bench."""
        return all_budgets({name: each.data for name, each in self.found.items()})

    def to_json(self) -> dict[str, Any]:
        """The file of results: numbers, strings, lists and dictionaries only. Times are nanoseconds."""
        return {
            "schema": SCHEMA,
            "lamina": lamina.__version__,
            "date": self.date,
            "machine": self.machine,
            "quick": self.asked.quick,
            "complete": self.complete,
            "stopped": self.stopped,
            "benches": {name: each.data for name, each in self.found.items()},
            "budgets": self.budgets,
        }


def run_all(benches: Sequence[Bench], asked: Asked, tell: Tell, keep: Callable[[Whole], object]) -> Whole:
    """Measure; `keep` is called before the first bench and after each, and what it raises ends the run.

    A bench that raises is an error in the results, and the others go on. Ctrl-C ends the run.
    """
    whole = Whole(describe_machine(), asked)
    keep(whole)
    for bench in benches:
        try:
            whole.found[bench.name] = _found(bench, whole, tell)
        except KeyboardInterrupt:
            whole.stopped = f"interrupted before {bench.name} was done"
        if whole.stopped:
            break
        keep(whole)
    whole.complete = not whole.stopped and not whole.failed
    keep(whole)
    return whole


def _found(bench: Bench, whole: Whole, tell: Tell) -> Found:
    """What a bench found; what it had found, marked, where it raised."""
    stretch = Stretch(bench.name, bench.expected(whole.asked), tell)
    try:
        stretch.begin("", 0)
        found = bench.measure(whole.asked, stretch)
        json.dumps(found.data, allow_nan=False)
    except KeyboardInterrupt:
        whole.stopped = f"interrupted while {bench.name} was measured"
        return _marked(bench, stretch, "interrupted")
    except Exception as error:  # noqa: BLE001  # reported as this bench's failure; the others are to go on
        return _marked(bench, stretch, reason_of(error), "".join(traceback.format_exception(error)))
    stretch.finish()
    return found


def _marked(bench: Bench, stretch: Stretch, reason: str, details: str = "") -> Found:
    """What there is of a bench that did not come to its end, with the reason."""
    nothing = {"schema": SCHEMA, "bench": bench.name, "figures": [], "gap_lines": []}
    found = Found(nothing)
    try:
        if stretch.so_far:
            found = stretch.so_far()
            json.dumps(found.data, allow_nan=False)
    except Exception as error:  # noqa: BLE001  # half a run may be too little to be summed up
        found = Found(nothing)
        details += f"\nand what it had measured is lost: {reason_of(error)}"
    return replace(found, data={**found.data, "error": reason, "traceback": details})


def write_results(whole: Whole, path: Path) -> None:
    """Write the file of results, whole or not at all."""
    write_whole(path, json.dumps(whole.to_json(), allow_nan=False).encode())
