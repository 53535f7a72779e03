"""The demo's files: whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .demo_plot import as_png
from .demo_report import as_json
from .demo_results import DemoResults
from .whole_file import write_whole

JSON_NAME, PNG_NAME = "lamina-demo.json", "lamina-demo.png"


class DemoError(RuntimeError):
    """The demo cannot do what was asked, or found what must not be; the text says which."""


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DemoError(
            f"can't write to {folder}: {error.strerror or error}. Name another folder with --out."
        ) from error


def folder_for(out: Path) -> Path:
    """The folder, made where it is missing, and tried before minutes of work are spent on what can't be kept.

    Raises:
        DemoError: it can't be made, or not be written to.
    """
    with _write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            return out


def write_both(results: DemoResults, folder: Path) -> list[Path]:
    """Write `lamina-demo.json` and `lamina-demo.png`, and return their paths. Both are made before either is written.

    Raises:
        DemoError: the folder can't be written to, or is full.
    """
    contents = {JSON_NAME: as_json(results).encode() + b"\n", PNG_NAME: as_png(results)}
    with _write_errors(folder):
        for name, content in contents.items():
            write_whole(folder / name, content)
    return [folder / name for name in contents]
