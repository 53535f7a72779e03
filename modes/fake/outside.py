"""A scope in which FakeLikeMode is off: for what has to be real, or torch's own fakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...subclasses.core.private import FAKE_SLOT, no_function_modes, put_in_slot, take_from_slot


@contextmanager
def outside() -> Iterator[None]:
    """Inside, neither half of the mode sees anything."""
    mode = take_from_slot(FAKE_SLOT)
    try:
        with no_function_modes():
            yield
    finally:
        if mode is not None:
            put_in_slot(mode)
