"""A measurement on the command line: its progress bar, and what is left of it after Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

Results = TypeVar("Results")
Advance = Callable[[str, int], None]

INTERRUPTED = 130
"""The exit status of a shell's command that Ctrl-C ended."""


def kept(run: Callable[[Advance, Callable[[Results], None]], Results], total: int) -> Results:
    """What ``run(advance, begun)`` returns; after Ctrl-C, what it handed to ``begun``, as far as it was filled in. With
    a progress bar on stderr where rich is installed."""
    found: list[Results] = []
    try:
        if find_spec("rich") is None:
            return run(_tell, found.append)
        from .progress import progress_bar

        with progress_bar(total, hidden=not sys.stderr.isatty(), with_left=True) as advance:
            return run(advance, found.append)
    except KeyboardInterrupt:
        if not found:
            raise
        return found[0]


def _tell(doing: str, by: int) -> None:
    if by:
        print(doing, file=sys.stderr)
