"""What DispatchLog and FunctionLog share: a log that they write to, and its views."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..subclasses.logging_tensor import Log, OpRecord
from ..subclasses.logging_tensor.record import Phase

if TYPE_CHECKING:
    from rich.table import Table


class LogView:
    """Mixed into a mode: its log, watched while the mode is on."""

    def __init__(self, log: Log | None) -> None:
        self.log = Log() if log is None else log

    @property
    def records(self) -> list[OpRecord]:
        return self.log.records

    @property
    def counts(self) -> Counter[str]:
        return self.log.counts

    @property
    def by_phase(self) -> dict[Phase, Counter[str]]:
        return self.log.by_phase

    def to_json(self) -> dict[str, Any]:
        return self.log.to_json()

    def __len__(self) -> int:
        return len(self.log)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.log.table()

    def __rich__(self) -> Table:
        return self.log.__rich__()

    def _begin(self) -> None:
        self.log.attach()

    def _end(self, *, raising: bool) -> None:
        self.log.detach(raising=raising)
