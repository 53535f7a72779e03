"""What DispatchLog and FunctionLog share: a log that they write to, and its views."""

from __future__ import annotations

from typing import Any

from ..subclasses.logging_tensor import Log, OpRecord, Tallied


class LogView(Tallied):
    """Mixed into a mode: its log, watched while the mode is on."""

    def __init__(self, log: Log | None) -> None:
        self.log = Log() if log is None else log
        self.tally = self.log.tally

    @property
    def records(self) -> list[OpRecord]:
        """Those of the log, in the order in which the calls began."""
        return self.log.records

    def to_json(self) -> dict[str, Any]:
        """Counts and records as plain types."""
        return self.log.to_json()

    def __len__(self) -> int:
        return len(self.log)

    def __bool__(self) -> bool:
        return True

    def _begin(self) -> None:
        self.log.attach()

    def _end(self, *, raising: bool) -> None:
        self.log.detach(raising=raising)
