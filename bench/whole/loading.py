"""Reads files of results: those of `lamina bench all`, and what `--json` of one bench prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..record import SCHEMA

HOW = "Write one with `lamina bench all --out DIR`, or with --json of one bench."
EXPLANATIONS = ("selfcheck", "anatomy")
"""Benches that judge the instrument, or take apart what another bench measures: not to be compared between runs."""
Key = tuple[str, str]
"""The bench, and the figure's name."""


class ResultsFileError(ValueError):
    """A file that cannot be read as results, or two that cannot be compared."""


@dataclass(frozen=True)
class Loaded:
    """The content of a file of results: machine, and each bench's JSON by its name."""

    path: Path
    machine: Mapping[str, Any]
    benches: Mapping[str, Mapping[str, Any]]
    complete: bool = True
    quick: bool = False
    date: str = ""

    @property
    def figures(self) -> dict[Key, Mapping[str, Any]]:
        """The figures that can be compared."""
        return {
            (bench, each["name"]): each
            for bench, data in self.benches.items()
            if bench not in EXPLANATIONS
            for each in data["figures"]
            if each["time_ns"]["median"] > 0
        }


def load(path: Path) -> Loaded:
    """Read a file; a ResultsFileError says what is wrong with it."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ResultsFileError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ResultsFileError(f"{path} is no JSON: {error}") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise ResultsFileError(f"{path} holds no results of a bench: there is no schema in it. {HOW}")
    if data["schema"] != SCHEMA:
        raise ResultsFileError(f"{path} has schema {data['schema']!r}, and this lamina reads {SCHEMA}. Measure again.")
    benches = data["benches"] if "benches" in data else {data.get("bench"): data}
    if not isinstance(benches, dict):
        raise ResultsFileError(f"{path}: benches is no object, but a {type(benches).__name__}. {HOW}")
    for name, found in benches.items():
        _check(path, name, found)
    complete, quick = data.get("complete", True), data.get("quick", False)
    return Loaded(path, data.get("machine") or {}, benches, complete, quick, data.get("date", ""))


def _check(path: Path, bench: object, found: Any) -> None:
    """Raise unless a bench has a name, and each of its figures a name and a time."""
    if not isinstance(bench, str) or not isinstance(found, dict) or not isinstance(found.get("figures"), list):
        raise ResultsFileError(f"{path}: {bench} has no figures. {HOW}")
    for number, figure in enumerate(found["figures"]):
        if not (
            isinstance(figure, dict) and isinstance(figure.get("name"), str) and _is_summary(figure.get("time_ns"))
        ):
            raise ResultsFileError(f"{path}: figure {number} of {bench} lacks its name or its time_ns. Measure again.")


def _is_summary(found: Any) -> bool:
    return isinstance(found, dict) and "median" in found and len(found.get("interval", ())) == 2
