"""One check in a process of its own: it can crash or hang there, and whatever it changes is gone afterwards.

The process is a fork: the class and ``make`` may be local, and nothing is imported again. On a GPU, which a fork can't
use, the check runs here, and a crash takes all with it.
"""

from __future__ import annotations

import io
import multiprocessing as mp
import os
import signal
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from .check import Check
from .outcome import KnownLimit, MismatchError, NotApplicable, first_line
from .report import Result, Status
from .subject import Subject

_LINES = 4  # of what a process that died wrote at last


def outcome_of(check: Check, subject: Subject) -> Result:
    """Run it here. Any error is a failure of the class; the text says where."""
    started = time.perf_counter()
    status, detail, coverage = Status.PASS, "", None
    if subject.kind not in check.kinds:
        return Result(check.name, check.group, Status.NOT_APPLICABLE, f"not for {subject.kind.value} classes")
    try:
        # Samples of many kinds are run on purpose: what torch warns of is not what is judged.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            coverage = check.function(subject)
    except NotApplicable as reason:
        status, detail = Status.NOT_APPLICABLE, str(reason)
    except KnownLimit as reason:
        status, detail, coverage = Status.KNOWN_LIMIT, str(reason), reason.coverage
    except MismatchError as mismatch:
        status, detail, coverage = Status.FAIL, str(mismatch), mismatch.coverage
    except Exception as error:  # noqa: BLE001 - whatever a class raises where it should not is the finding
        status, detail = Status.FAIL, f"{type(error).__name__}: {first_line(error)}\n{_place(error, check)}"
    return Result(check.name, check.group, status, detail, time.perf_counter() - started, check.reported, coverage)


def note(text: str) -> None:
    """What a check that does much is at: shown should its process die or hang. It takes the place of the last note."""
    if _Own.output is not None:
        os.ftruncate(_Own.output, 0)
        os.lseek(_Own.output, 0, os.SEEK_SET)
        os.write(_Own.output, f"at work: {text}\n".encode())


class _Own:
    """Of a process that runs a check: the file of what it writes."""

    output: int | None = None


def _place(error: BaseException, check: Check) -> str:
    """The line of the check that was at work, and the last line of all."""
    file = check.function.__code__.co_filename
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    lines = [f"  in the check: {own[-1].line}"] if own else []
    if frames:
        last = frames[-1]
        lines.append(f"  raised at {Path(last.filename).name}:{last.lineno}: {last.line}")
    return "\n".join(lines)


class Attempt:
    """A check at work in a fork of this process."""

    def __init__(self, check: Check, subject: Subject) -> None:
        self.check = check
        self._limit = check.limit(full=subject.full)
        self._started = time.perf_counter()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the attempt
        context = mp.get_context("fork")
        self.connection, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(check, subject, sender, self._output.fileno()))
        with warnings.catch_warnings():
            # Since Python 3.12 a fork beside threads warns: the child runs one, and never waits for another's lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        sender.close()

    @property
    def left(self) -> float:
        """Seconds until it counts as hanging."""
        return self._limit - (time.perf_counter() - self._started)

    def end(self) -> Result:
        """Its result once ``connection`` is ready; or, the time being over, the end of it."""
        result: Result | None = None
        if self.connection.poll(0):
            try:
                result = self.connection.recv()
            except EOFError:
                self._process.join()
        elif self._process.is_alive():
            result = self._failed(f"hangs: nothing came in {self._limit:g} s")
        self._process.kill()
        self._process.join()
        result = result or self._failed(f"crashes: the process ended with {_end(self._process.exitcode)}")
        self.connection.close()
        self._output.close()
        return result

    def _failed(self, text: str) -> Result:
        self._output.seek(0)
        written = self._output.read().decode(errors="replace").split("\n")
        last = [line for line in written if line.strip()][-_LINES:]
        detail = "\n".join([text, *(f"  {line}" for line in last)])
        seconds = time.perf_counter() - self._started
        return Result(self.check.name, self.check.group, Status.FAIL, detail, seconds, self.check.reported)


def _work(check: Check, subject: Subject, sender: Connection, output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    _Own.output = output
    torch.set_num_threads(1)  # a fork has none of the parent's pool, and would wait for it
    result = outcome_of(check, subject)
    sender.send(result)
    sender.close()


def _end(code: int | None) -> Any:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"status {code}"
