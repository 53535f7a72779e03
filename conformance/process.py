"""One check in a process of its own: it can crash or hang there, and whatever it changes is gone afterwards.

The process is a fork: the class and ``make`` may be local, and nothing is imported again. On a GPU, which a fork can't
use, the check runs here, and a crash takes all with it.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import multiprocessing as mp
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from .check import Check
from .last_words import last_words
from .outcome import KnownLimit, MismatchError, NotApplicable, first_line, text_of
from .refusal import names_the_step
from .report import Result, Status
from .subject import Subject

_GRACE = 0.5  # seconds for a process to end by itself, or to write where it hangs
# While one thread makes a pipe and forks, no other may fork: its child would hold this pipe open.
_FORKING = threading.Lock()


def outcome_of(check: Check, subject: Subject) -> Result:
    """Run it here, leave out what it prints, and put the random numbers back. Any error is a failure of the class; the
    text says where. Ctrl-C goes on to the caller.
    """
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output), torch.random.fork_rng(devices=()):
        return _outcome(check, subject, KeyboardInterrupt)


def _outcome(check: Check, subject: Subject, *passed_on: type[BaseException]) -> Result:
    started = time.perf_counter()
    status, detail, coverage = Status.PASS, "", None
    try:
        # Samples of many kinds are run on purpose: what torch warns of is not what is judged.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            coverage = check.function(subject)
    except passed_on:
        raise
    except NotApplicable as reason:
        status, detail = Status.NOT_APPLICABLE, text_of(reason)
    except KnownLimit as reason:
        status, detail, coverage = Status.KNOWN_LIMIT, text_of(reason), reason.coverage
    except MismatchError as mismatch:
        status, detail, coverage = Status.FAIL, text_of(mismatch), mismatch.coverage
    except BaseException as error:  # noqa: BLE001 - whatever a class raises where it should not is the finding
        status, detail = Status.FAIL, f"{type(error).__name__}: {first_line(error)}\n{_place(error, check)}"
    if status is Status.FAIL and names_the_step(detail, subject):
        status, detail = Status.NOT_APPLICABLE, f"the check leaves the grid of the class, which says so: {detail}"
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
        # Since Python 3.12 a fork beside threads warns: the child runs one, and never waits for another's lock.
        with _FORKING, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.connection, sender = context.Pipe(duplex=False)
            work = (check, subject, sender, self._output.fileno(), self._limit)
            self._process = context.Process(target=_work, args=work)
            self._process.start()
            sender.close()
        self._pid = self._process.pid or 0
        with suppress(OSError):  # the child does so, too: whoever comes first
            os.setpgid(self._pid, self._pid)

    @property
    def left(self) -> float:
        """Seconds until it counts as hanging."""
        return self._limit - (time.perf_counter() - self._started)

    @property
    def over(self) -> bool:
        """Whether its process has ended, whoever still holds the other end of ``connection``."""
        try:
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody waits for all children of this process
            return True

    def end(self) -> Result:
        """Its result once ``connection`` is ready; or, the time being over, the end of it."""
        ended = self.over or self.connection.poll(0)
        result = self._received() if ended else self._hangs()
        if ended:
            self._leave()
        self._kill()
        if result is None:
            result = self._failed(f"crashes: the process ended with {_end(self._process.exitcode)}")
        self._close()
        return result

    def stop(self) -> None:
        """End the process, and all that it started."""
        self._kill()
        self._close()

    def _received(self) -> Result | None:
        try:
            result: Result | None = self.connection.recv() if self.connection.poll(0) else None
        except (EOFError, OSError):  # it died, perhaps half-way through
            result = None
        return result

    def _leave(self) -> None:
        """Wait a while for its end. The sentinel is let go of a moment before that."""
        until = time.perf_counter() + _GRACE
        wait([self._process.sentinel], _GRACE)
        while not self.over and time.perf_counter() < until:
            time.sleep(0.001)

    def _hangs(self) -> Result:
        os.kill(self._pid, signal.SIGUSR1)  # it writes where it is
        wait([self._process.sentinel], _GRACE / 5)
        return self._failed(f"hangs: nothing came in {self._limit:g} s")

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if not self.over:
                os.killpg(self._pid, signal.SIGTERM)  # a C++ compiler then removes the file that it has half written
                time.sleep(_GRACE / 10)
            os.killpg(self._pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()

    def _close(self) -> None:
        self.connection.close()
        self._output.close()
        with suppress(ValueError):  # somebody else waited for it, so that its status is unknown here
            self._process.close()

    def _failed(self, text: str) -> Result:
        file = self.check.function.__code__.co_filename
        detail = "\n".join([text, *(f"  {line}" for line in last_words(self._output, file))])
        seconds = time.perf_counter() - self._started
        return Result(self.check.name, self.check.group, Status.FAIL, detail, seconds, self.check.reported)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Ctrl-C and the like take effect at the end of it: what they raise within a fork is lost in its hooks."""
    came: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for replaced, handler in before.items():
            signal.signal(replaced, handler)
        for late in came:
            signal.raise_signal(late)


def _work(check: Check, subject: Subject, sender: Connection, output: int, limit: float) -> None:
    _FORKING.release()  # held by the thread that forked, which is this one
    with suppress(PermissionError):
        os.setpgid(0, 0)  # Ctrl-C is for the parent, which ends all that runs in here
    _redirect(output)
    _reset_signals(limit)
    gc.freeze()  # a collection would write to each object of the parent's, and so copy its memory
    torch.set_num_threads(1)  # a fork has none of the parent's pool, and would wait for it
    torch.ones((), requires_grad=True).exp()  # autograd makes its engine anew in a fork; two threads at once: SIGSEGV
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # each compiles as if it were the first to
    sender.send(_sendable(_outcome(check, subject)))
    sender.close()


def _sendable(result: Result) -> Result:
    try:
        pickle.dumps(result)
    except Exception as error:  # noqa: BLE001 - what a class under test has written may be in it
        detail = f"the result can't be sent to another process: {type(error).__name__}: {first_line(error)}"
        return replace(result, status=Status.FAIL, detail=detail, coverage=None)
    return result


def _redirect(output: int) -> None:
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    _Own.output = output
    faulthandler.enable(2)


def _reset_signals(limit: float) -> None:
    """The parent's handlers are not for here. Should the parent be gone, the alarm ends what hangs."""
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, 2, all_threads=False)
    signal.setitimer(signal.ITIMER_REAL, limit + 10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _end(code: int | None) -> str:
    if code is None:
        return "an unknown status"
    if code >= 0:
        return f"status {code} and no result"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"
