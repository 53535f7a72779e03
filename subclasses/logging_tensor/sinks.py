"""Where records go: a list, Python's ``logging``, a file of JSON lines, a Chrome trace.

A sink has ``write(record)`` and ``close()``, and may be written to again after it was closed: a log closes its sinks
each time its outermost scope ends. A log reports what a sink raises once, as a warning, and writes to it no more.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from .record import OpRecord


@runtime_checkable
class Sink(Protocol):
    """What a log writes to."""

    def write(self, record: OpRecord) -> None:
        """Takes one record, when its call has ended: inner calls come before the outer one."""

    def close(self) -> None:
        """Completes what was written, and frees files."""


class ListSink:
    """Keeps the records in memory."""

    def __init__(self) -> None:
        self._records: list[OpRecord] = []

    def write(self, record: OpRecord) -> None:
        """Appends the record."""
        self._records.append(record)

    def close(self) -> None:
        """Nothing to do: the records stay."""

    @property
    def records(self) -> list[OpRecord]:
        """In the order in which the calls began."""
        return sorted(self._records, key=lambda record: record.index)


class LoggingSink:
    """Hands the records to ``logging``: ``str(record)`` is the message, the record its attribute ``lamina``."""

    def __init__(self, logger: str | logging.Logger = "lamina.ops", level: int = logging.INFO) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    def write(self, record: OpRecord) -> None:
        """Logs the record as text; the record itself is in the ``lamina`` attribute."""
        self._logger.log(self._level, "%s", record, extra={"lamina": record})

    def close(self) -> None:
        """Nothing to do: the handlers belong to the application."""


class JsonLinesSink:
    """A file with one JSON object a line. Each line is handed to the system at once, so that a crash loses none.

    The file is created, or emptied, here; after a ``close()`` it is continued.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: TextIO | None = self._path.open("w", buffering=1, encoding="utf-8")

    def write(self, record: OpRecord) -> None:
        """Writes one line, and flushes it."""
        if self._file is None:
            self._file = self._path.open("a", buffering=1, encoding="utf-8")
        self._file.write(json.dumps(record.to_json(), allow_nan=False) + "\n")

    def close(self) -> None:
        """Completes the file, and closes it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class ChromeTraceSink:
    """A trace that Perfetto (https://ui.perfetto.dev) and ``chrome://tracing`` open: one bar a call, nested by time.

    The file is created, or emptied, here; ``close()`` ends the JSON array, and after it the file is continued. One that
    was never closed, since the process died, lacks the closing bracket: the format allows that.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: TextIO | None = self._path.open("w", encoding="utf-8")
        self._file.write("[\n")
        self._separator = ""
        self._end = 0

    def write(self, record: OpRecord) -> None:
        """Writes one event."""
        if self._file is None:
            self._file = self._path.open("r+", encoding="utf-8")
            self._file.seek(self._end)  # over the closing bracket, which is shorter than any event
        self._file.write(self._separator + json.dumps(chrome_event(record), allow_nan=False))
        self._separator = ",\n"

    def close(self) -> None:
        """Completes the file, and closes it."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            self._end = file.tell()
            file.write("\n]\n")


def chrome_event(record: OpRecord) -> dict[str, Any]:
    """A complete event ("ph": "X") of the Trace Event Format; times in microseconds."""
    details = record.to_json()
    for shown in ("start_ns", "duration_ns", "thread", "name", "overload"):
        del details[shown]
    return {
        "name": record.op,
        "cat": f"{record.phase},{record.layer}",
        "ph": "X",
        "ts": record.start_ns / 1000,
        "dur": record.duration_ns / 1000,
        "pid": os.getpid(),
        "tid": record.thread,
        "args": details,
    }
