"""The log: numbers calls, times them, and hands their records to sinks."""

from __future__ import annotations

import itertools
import json
import os
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Literal, TypeVar

from ..core.errors import LaminaError
from .digest import digest_of
from .module_path import module_path
from .phase import current_phase
from .record import Layer, OpRecord, Value, describe_call, describe_error, describe_result, joined, name_of
from .scope import (
    LIVE,
    THREAD,
    LogHandle,
    enter_scope,
    forks,
    hold,
    leave_scope,
    muted,
    register,
    release,
    unregister,
)
from .selection import Selection
from .sinks import ListSink, Sink, chrome_event
from .tally import Tallied, Tally

T = TypeVar("T")


class SinkWarning(UserWarning):
    """A sink raised. The run goes on, and so does the log, without that sink."""


class SinkError(LaminaError, OSError):
    """A sink could not complete what was written to it. ``__cause__`` is what it raised."""


class NoRecordsError(LaminaError, RuntimeError):
    """The records of a log were asked for, and it keeps none."""


class _Thread(threading.local):
    """``level``: how many recorded calls of one log run in this thread."""

    def __init__(self) -> None:
        self.level = 0
        self.number = threading.get_native_id()  # asked once: 0.2 us


class Log(Tallied):
    """Records of operators, handed to sinks; without sinks, kept in a list.

    ``with Log() as log:`` puts it in scope for this thread, and for the backwards that the thread starts: tensors that
    record themselves write to the innermost log in scope. Modes are given theirs.

    >>> import torch
    >>> from lamina.modes import DispatchLog
    >>> log = Log()
    >>> with DispatchLog(log):
    ...     _ = torch.ones(2, 3) + 1
    >>> [record.op for record in log]
    ['aten::ones', 'aten::add.Tensor']
    >>> log.records[1].outputs[0].shape
    (2, 3)

    A sink that raises is left out from then on, with one SinkWarning. When the outermost scope ends, all sinks are
    completed; one that can't be, or whose file did not take a record, raises SinkError. In a process forked off, the
    copy of a log records nothing.

    ``select``: a ``Selection`` of the calls to record. ``values="hash"`` records a digest of each result's bits, by
    which ``lamina.modes.diff_logs`` finds the first that differs; it reads all values, which on a GPU waits for them.

    Raises:
        TypeError: what is given as a sink is none.
        ValueError: ``values`` is neither None nor "hash".
    """

    def __init__(self, *sinks: Sink, select: Selection | None = None, values: Literal["hash"] | None = None) -> None:
        if values not in (None, "hash"):
            raise ValueError(f'values = {values!r}; it is None or "hash"')
        self._select, self._values = select, values
        for sink in sinks:
            if isinstance(sink, type) or not isinstance(sink, Sink):
                raise TypeError(f"Log(*sinks) takes sinks, such as JsonLinesSink(path), got {sink!r}")
        self._outlets = [_Outlet(sink) for sink in sinks or (ListSink(),)]
        self.tally = Tally()
        self._indices = itertools.count()
        self._thread = _Thread()
        self._lock = threading.RLock()
        self._process = forks()
        self._token = uuid.uuid4().hex
        self._handled = False
        weakref.finalize(self, _forget, self._token, self._outlets)

    def __enter__(self) -> Log:
        self.attach()
        enter_scope(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_scope(self)
        self.detach(raising=error is None)

    def attach(self) -> None:
        """Starts to watch what records tell of. A mode that feeds this log does so while it is on."""
        hold(self._token)

    def detach(self, *, raising: bool = True) -> None:
        """Undoes one ``attach``; the last completes the sinks. With ``raising=False`` what they raise is a warning."""
        last = release(self._token)
        if last or (self._handled and LIVE[self._token] == 1):
            self._complete(raising)

    @property
    def handle(self) -> LogHandle:
        """Names this log where it can't be held itself. Until ``close()``, it gets records outside its scope too."""
        if not self._handled:
            self._handled = True
            register(self._token, self)
            self.attach()
        return LogHandle(self._token)

    def close(self) -> None:
        """Completes the sinks. Handles given out name nothing any more, until ``handle`` is read again."""
        if self._handled:
            self._handled = False
            unregister(self._token)
            release(self._token)
        self._complete(raising=True)

    def _complete(self, raising: bool) -> None:
        with self._lock, muted():
            errors = [error for outlet in self._outlets if (error := outlet.close()) is not None]
        for error in errors:
            text = f"a sink of the log could not be completed: {describe_error(error)}"
            if raising:
                raise SinkError(text) from error
            warnings.warn(text, SinkWarning, stacklevel=4)

    def observe(
        self,
        func: Any,
        run: Callable[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        layer: Layer,
        cls: str | None = None,
    ) -> T:
        """Returns ``run(*args, **kwargs)``, and records it as a call of ``func``; also when it raises. What sinks call
        is not recorded."""
        if THREAD.muted:
            return run(*args, **kwargs)
        name, overload = name_of(func)
        phase, path = current_phase(), module_path(makes_nodes=layer != "function")
        if self._select is not None and not self._select.takes(joined(name, overload), phase, path):
            return run(*args, **kwargs)
        inputs, keywords = describe_call(args, kwargs)
        index, thread = next(self._indices), self._thread
        depth = thread.level
        thread.level = depth + 1
        outputs: tuple[Value, ...] = ()
        failure = digest = None
        start = perf_counter_ns()
        try:
            result = run(*args, **kwargs)
            duration = perf_counter_ns() - start
        except BaseException as error:
            duration = perf_counter_ns() - start
            failure = describe_error(error)
            raise
        else:
            outputs = describe_result(result)
            if self._values:
                digest = digest_of(args if result is None else result)  # list ops write, and return nothing
            return result
        finally:
            thread.level = depth
            self.add(
                OpRecord(
                    index, name, overload, layer, phase, inputs, keywords, outputs,
                    cls, depth, path, start, duration, thread.number, failure, digest,
                )
            )  # fmt: skip

    def next_index(self) -> int:
        """The index of a record that is made elsewhere."""
        return next(self._indices)

    def add(self, record: OpRecord) -> None:
        """Hands a record to all sinks."""
        if self._process != forks():
            return
        with self._lock:
            self.tally.add(record.phase, record.name, record.overload)
            for outlet in self._outlets:
                outlet.write(record)

    @property
    def records(self) -> list[OpRecord]:
        """A copy of the list, in the order in which the calls began."""
        with self._lock:
            for outlet in self._outlets:
                if isinstance(outlet.sink, ListSink):
                    return outlet.sink.records
        raise NoRecordsError("this log keeps no records: its sinks write them elsewhere. Give it a ListSink() as well.")

    def __iter__(self) -> Iterator[OpRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        """How many calls were recorded, wherever their records went."""
        return self.total

    def __bool__(self) -> bool:
        return True

    def to_json(self) -> dict[str, Any]:
        """Counts and records as plain types."""
        return {**super().to_json(), "records": [record.to_json() for record in self.records]}

    def save_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the records as a trace for Perfetto or ``chrome://tracing``."""
        events = [chrome_event(record) for record in self.records]
        Path(path).write_text(json.dumps(events, allow_nan=False), encoding="utf-8")


class _Outlet:
    """A sink, until it raises. What it raised is told at once; that a file could not take it is an error at the end."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.failed = False
        self._refused: OSError | None = None

    def write(self, record: OpRecord) -> None:
        if self.failed:
            return
        before, THREAD.muted = THREAD.muted, True  # as muted() does; a scope would take 0.3 us more
        try:
            self.sink.write(record)
        except Exception as error:  # noqa: BLE001 - whatever an author's sink raises is told, and the run goes on
            self.failed = True
            self._refused = error if isinstance(error, OSError) else None
            text = f"{type(self.sink).__name__} raised {describe_error(error)}; the log goes on without it"
            warnings.warn(text, SinkWarning, stacklevel=5)
        finally:
            THREAD.muted = before

    def close(self) -> Exception | None:
        """What the sink raised, if that is news, or is an error at the end."""
        refused, self._refused = self._refused, None
        try:
            self.sink.close()
        except Exception as error:  # noqa: BLE001 - the caller raises it, after the other sinks were closed
            return refused if self.failed else error
        return refused


def _forget(token: str, outlets: list[_Outlet]) -> None:
    """When a log is gone: it holds nothing live, and its files are completed."""
    while token in LIVE:
        release(token)
    for outlet in outlets:
        outlet.close()
