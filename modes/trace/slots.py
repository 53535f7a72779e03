"""What the slots of an operator's dispatch table hold, read from the table that the dispatcher computed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from ...subclasses.core.private import computed_table, registrations


class Kernel(Enum):
    """What kind of kernel a slot holds."""

    BACKEND = "backend kernel"
    EXPLICIT = "composite explicit kernel"
    IMPLICIT = "composite implicit kernel"
    AUTOGRAD = "autograd kernel"
    AUTOCAST = "autocast kernel"
    VIEW = "view and version kernel"
    FALLBACK = "backend fallback"
    FALLTHROUGH = "fallthrough"
    OTHER = "kernel"
    PYTHON = "Python"
    MISSING = "missing"


_LINE = re.compile(r"(?P<key>\w+): (?P<over>fallthrough )?registered at (?P<where>.+?) \[(?P<what>[^\]]+)\]$")
_REGISTERED = re.compile(r"(?P<key>\w+)(?:\[alias\])?: registered at (?P<where>.+?) :: ")
# What torch writes behind a slot, in our words.
_WRITTEN = {
    "math kernel": Kernel.IMPLICIT,
    "default backend kernel": Kernel.EXPLICIT,
    "autograd kernel": Kernel.AUTOGRAD,
    "backend fallback": Kernel.FALLBACK,
}
_BY_NAME = {"Autocast": Kernel.AUTOCAST, "Autograd": Kernel.AUTOGRAD, "ADInplaceOrView": Kernel.VIEW}
_ABOVE_BACKENDS = ("FuncTorch", "Batched", "Functionalize", "Tracer", "Conjugate", "Negative", "ZeroTensor", "Testing")


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot: the runtime key, the kind of kernel, and the file and line of its registration."""

    key: str
    kernel: Kernel
    where: str = ""

    @property
    def place(self) -> str:
        """File and line, without the folders of the machine that built torch."""
        path, colon, line = self.where.rpartition(":")
        return f"{PurePosixPath(path).name}{colon}{line}" if colon else self.where

    def __str__(self) -> str:
        return f"{self.kernel.value} ({self.place})" if self.where else self.kernel.value


def slots_of(op: str) -> dict[str, Slot]:
    """The computed table of an operator, such as ``aten::add.Tensor``: runtime key to slot. Keys that are not there
    have no kernel."""
    found = {}
    for line in computed_table(op).splitlines():
        match = _LINE.match(line.strip())
        if match:
            key = match["key"]
            over = match["over"] is not None
            found[key] = Slot(key, Kernel.FALLTHROUGH if over else _kind(key, match["what"]), match["where"])
    return found


def registered_of(op: str) -> dict[str, str]:
    """Backend or alias key to the file and line of the kernel that is registered under exactly it; keys above the
    backends are left out."""
    found = {}
    for line in registrations(op).splitlines():
        match = _REGISTERED.match(line)
        if match and (match["key"].startswith("Composite") or _kind(match["key"], "") is Kernel.BACKEND):
            found[match["key"]] = Slot(match["key"], Kernel.BACKEND, match["where"]).place
    return found


def _kind(key: str, written: str) -> Kernel:
    if key in ("Python", "PythonTLSSnapshot"):
        return Kernel.PYTHON
    if written in _WRITTEN:
        return _WRITTEN[written]
    for start, kind in _BY_NAME.items():
        if key.startswith(start):
            return kind
    return Kernel.OTHER if key.startswith(_ABOVE_BACKENDS) or key == "BackendSelect" else Kernel.BACKEND
