"""The storage of FakeLikeTensors in a pickle: one object for all that share it, so that they share it afterwards."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from ..core.private import storage_id

_lock = threading.Lock()


class Storage:
    """Holds what it stands for, whose identity is therefore nobody else's as long as it lives: as long as the pickle is
    being written."""

    __slots__ = ("__weakref__", "held")

    def __init__(self, held: torch.UntypedStorage) -> None:
        self.held = held

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held

    def __reduce__(self) -> Any:
        return storage_of_size, (self.held.nbytes(),)


_known: weakref.WeakValueDictionary[int, Storage] = weakref.WeakValueDictionary()


def storage_of(tensor: torch.Tensor) -> Storage:
    """That of ``tensor``: the same object for all that share it."""
    key = storage_id(tensor)
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = Storage(tensor.untyped_storage())
        return found


def storage_of_size(size: int) -> Storage:
    """A new one, of so many bytes that are not there."""
    return Storage(torch.UntypedStorage(size, device="meta"))


torch.serialization.add_safe_globals([storage_of_size])
