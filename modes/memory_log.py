"""MemoryLog: how many bytes of tensors are alive, and which phase and module made them."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from ..subclasses.core.fields import leaf_tensors, tensors_in
from ..subclasses.core.private import strided_parts
from ..subclasses.logging_tensor.module_path import module_path
from ..subclasses.logging_tensor.phase import current_phase, unwatch_optimizers, watch_optimizers
from ..subclasses.logging_tensor.record import joined, name_of
from .dispatch_mode import WatchingDispatchMode

BEFORE = "before"  # the phase of what was there when the scope began


@dataclass(frozen=True, slots=True)
class Block:
    """One storage: its bytes, and the phase, module and operator that made it."""

    nbytes: int
    phase: str
    module: str | None
    op: str | None


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes alive after an operator ran."""

    index: int
    op: str
    phase: str
    live_bytes: int


@dataclass
class Snapshot:
    """What was alive after ``op``. Bytes by the phase and the module that made them."""

    live_bytes: int = 0
    by_phase: Counter[str | None] = field(default_factory=Counter)
    by_module: Counter[str | None] = field(default_factory=Counter)
    op: str | None = None

    def count(self, block: Block, sign: int) -> None:
        """Add or take away a block."""
        keys: list[tuple[Counter[str | None], str | None]]
        keys = [(self.by_phase, block.phase), (self.by_module, block.module)]
        for counter, key in keys:
            counter[key] += sign * block.nbytes
            if not counter[key]:
                del counter[key]
        self.live_bytes += sign * block.nbytes

    def copy(self, op: str | None) -> Snapshot:
        """One that stays as it is."""
        return Snapshot(self.live_bytes, self.by_phase.copy(), self.by_module.copy(), op)


class MemoryLog(WatchingDispatchMode):
    """Counts the bytes of the tensors that are alive in its scope: of each storage once, whatever the number of its
    views, and of wrappers the storages inside. ``peak`` is what was alive when most was, by phase and by module.

    ``known``: modules, optimizers, tensors, or lists and dicts of them, that are there before: their bytes count from
    the start, as phase "before". What else comes in from outside counts from the first operator that is given it.

    Bytes are those that tensors ask for: an allocator rounds up, and the scratch memory of kernels is not seen. What is
    freed shows at the next operator. Under ``torch.compile``: as DispatchLog; buffers inside compiled code do not show.

    >>> import torch
    >>> with MemoryLog() as memory:
    ...     x = torch.ones(1000)
    ...     y = (x + 1).sum()
    >>> memory.peak_bytes, memory.live_bytes
    (8004, 4004)
    """

    def __init__(self, *known: Any) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._blocks: dict[int, Block] = {}
        self._known: Any = known
        self._now = Snapshot()
        self.peak = Snapshot()
        self.moments: list[Moment] = []

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were alive at once."""
        return self.peak.live_bytes

    @property
    def live_bytes(self) -> int:
        """What is alive now."""
        return self._now.live_bytes

    def now(self) -> Snapshot:
        """What is alive at this moment, by phase and module."""
        with self._lock:
            return self._now.copy(None)

    def to_json(self) -> dict[str, Any]:
        """The peak, what is alive, and the moments, as plain types."""
        peak = {
            "bytes": self.peak_bytes,
            "op": self.peak.op,
            "by_phase": dict(self.peak.by_phase.most_common()),
            "by_module": {str(module): nbytes for module, nbytes in self.peak.by_module.most_common()},
        }
        moments = [[each.op, each.phase, each.live_bytes] for each in self.moments]
        return {"peak": peak, "live_bytes": self.live_bytes, "moments": moments}

    def __str__(self) -> str:
        lines = [f"peak {self.peak_bytes:,} bytes, at {self.peak.op}; alive {self.live_bytes:,}"]
        lines += [f"  {phase:<10} {nbytes:>16,}" for phase, nbytes in self.peak.by_phase.most_common()]
        lines += [
            f"    {module or '(no module)':<24} {nbytes:>16,}" for module, nbytes in self.peak.by_module.most_common()
        ]
        return "\n".join(lines)

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        path = module_path(makes_nodes=True)
        for tensor in tensors_in((args, dict(kwargs))):
            self._add(tensor, BEFORE, None, None)
        result = run(*args, **kwargs)
        phase, op = current_phase(), joined(*name_of(func))
        for tensor in tensors_in(result):
            self._add(tensor, phase, path, op)
        self._note(phase, op)
        return result

    def _add(self, tensor: torch.Tensor, phase: str, module: str | None, op: str | None) -> None:
        for leaf in leaf_tensors(tensor):
            for part in strided_parts(leaf):
                self._add_storage(part.untyped_storage(), phase, module, op)

    def _add_storage(self, storage: torch.UntypedStorage, phase: str, module: str | None, op: str | None) -> None:
        key, nbytes = id(storage), storage.nbytes()
        with self._lock:
            known = self._blocks.get(key)
            if known is not None and known.nbytes == nbytes:
                return
            if known is None:
                weakref.finalize(storage, partial(_free, weakref.ref(self), key)).atexit = False
            else:  # resized, as FSDP does
                self._now.count(known, -1)
                phase, module, op = known.phase, known.module, known.op
            self._blocks[key] = Block(nbytes, phase, module, op)
            self._now.count(self._blocks[key], 1)

    def _note(self, phase: str, op: str) -> None:
        with self._lock:
            self.moments.append(Moment(len(self.moments), op, phase, self.live_bytes))
            if self.live_bytes > self.peak.live_bytes:
                self.peak = self._now.copy(op)

    def _drop(self, key: int) -> None:
        with self._lock:
            block = self._blocks.pop(key, None)
            if block is not None:
                self._now.count(block, -1)

    def _begin(self) -> None:
        watch_optimizers()
        for tensor in _tensors_of(self._known):
            self._add(tensor, BEFORE, None, None)
        self._known = ()  # what is dropped meanwhile is not to live on here
        self.peak = self._now.copy(None)

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        unwatch_optimizers()


def _free(log: weakref.ref[MemoryLog], key: int) -> None:
    alive = log()
    if alive is not None:
        alive._drop(key)


def _tensors_of(values: Any) -> Iterable[torch.Tensor]:
    if isinstance(values, nn.Module):
        yield from _tensors_of([*values.parameters(), *values.buffers()])
    elif isinstance(values, torch.optim.Optimizer):
        yield from _tensors_of([*values.state.values()])
    elif isinstance(values, torch.Tensor):
        yield values
        if values.is_leaf and values.grad is not None:
            yield values.grad
    elif isinstance(values, dict):
        yield from _tensors_of(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for each in values:
            yield from _tensors_of(each)
