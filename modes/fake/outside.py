"""A scope in which FakeLikeMode is off: for what has to be real, or torch's own fakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...subclasses.core.private import no_dispatch_modes, no_function_modes


@contextmanager
def outside() -> Iterator[None]:
    """Inside, no mode sees anything, of the program's either."""
    with no_dispatch_modes(), no_function_modes():
        yield
