"""One decision of the dispatcher, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...subclasses.logging_tensor.record import Phase, Value, plain_value, text_of
from .keyset import KeySets
from .slots import Kernel, Slot


@dataclass(slots=True)
class Decision:
    """``layer``: who decides: the dispatcher, a function mode, a dispatch mode, or a wrapper class (or "call", for the
    public function that was called). ``key``: the runtime key that was chosen; ``source``: the key under which its
    kernel was registered, another one where it is an alias. ``records``: the autograd node of the result, if the
    kernel made one. ``observed``: the dispatcher was seen to take it; the rest of the line is computed from its tables
    and from the arguments.
    """

    index: int
    depth: int
    layer: str
    op: str
    phase: Phase
    inputs: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    key: str | None = None
    source: str | None = None
    slot: Slot | None = None
    keys: KeySets | None = None
    target: str | None = None
    where: str | None = None
    records: str | None = None
    error: str | None = None
    observed: bool = True
    start_ns: int = 0
    duration_ns: int = 0

    @property
    def kernel(self) -> Kernel | None:
        """The kind of kernel, if the dispatcher chose one."""
        return None if self.slot is None else self.slot.kernel

    def to_json(self) -> dict[str, Any]:
        """As plain types."""
        slot = self.slot
        return {
            "index": self.index,
            "depth": self.depth,
            "layer": self.layer,
            "op": self.op,
            "phase": self.phase,
            "inputs": [plain_value(value) for value in self.inputs],
            "keywords": {key: plain_value(value) for key, value in self.keywords},
            "key": self.key,
            "source": self.source,
            "kernel": None if slot is None else slot.kernel.value,
            "registered": None if slot is None else slot.place or None,
            "keys": None if self.keys is None else self.keys.to_json(),
            "target": self.target,
            "where": self.where,
            "records": self.records,
            "error": self.error,
            "observed": self.observed,
            "start_ns": self.start_ns,
            "duration_ns": self.duration_ns,
        }

    def __str__(self) -> str:
        return f"{'  ' * self.depth}{self.text()}"

    def text(self, *, keys: bool = True) -> str:
        """The line without its indent, and without the key sets if asked."""
        given = [text_of(value) for value in self.inputs] + [
            f"{name}={text_of(value)}" for name, value in self.keywords
        ]
        call = f"{self.op}({', '.join(given)})"
        if self.layer != "dispatcher":
            parts = [self.layer, self.target or call, f"({self.where})" if self.where else ""]
            return " ".join(part for part in [*parts, *self._ends()] if part)
        alias = f" by {self.source}" if self.source not in (None, self.key) else ""
        sets = f"{self.keys} -> " if keys and self.keys else ""
        held = f": {self.slot}" if self.slot else ""
        return ", ".join([f"{call}  {sets}{self.key}{held}{alias}", *self._ends()])

    def _ends(self) -> list[str]:
        ends = [f"records {self.records}"] if self.records else []
        if self.keys and self.keys.highest not in (None, self.key):
            ends.append(f"[computed: {self.keys.highest}]")
        return ends + ([f"!! {self.error}"] if self.error else [])
