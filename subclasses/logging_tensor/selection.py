"""Which calls a log records: by operator, phase and module, each so-manieth, and no more than so many."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import get_args

from .record import Phase


@dataclass(frozen=True)
class Selection:
    """``op``: patterns of names such as ``aten::*mm*``, of which one has to match; ``phase``: "forward", "backward" or
    "optimizer", or several; ``module``: patterns of paths such as ``encoder.*``. None selects all. ``every``: of the
    calls that match, the first and then each so-manieth; ``limit``: no more than so many. A call that is not recorded
    is not counted either.

    Raises:
        ValueError: a phase is none, or ``every`` or ``limit`` is below 1.

    >>> selection = Selection(op="aten::*mm", phase="backward")
    >>> selection.takes("aten::mm", "backward", None), selection.takes("aten::mm", "forward", None)
    (True, False)
    """

    op: str | Iterable[str] | None = None
    phase: Phase | Iterable[Phase] | None = None
    module: str | Iterable[str] | None = None
    every: int = 1
    limit: int | None = None
    _matched: itertools.count[int] = field(default_factory=itertools.count, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("op", "phase", "module"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else given and tuple(given))
        wrong = set(self.phase or ()) - set(get_args(Phase))
        if wrong:
            raise ValueError(f"phase = {', '.join(map(repr, sorted(wrong)))}; phases are {', '.join(get_args(Phase))}")
        if self.every < 1 or (self.limit is not None and self.limit < 1):
            raise ValueError(f"every = {self.every} and limit = {self.limit}: both are 1 or more")

    def takes(self, op: str, phase: Phase, module: str | None) -> bool:
        """Whether a call is recorded. Asking counts: the next call of the same kind may be one too many."""
        if not (_matches(self.op, op) and _matches(self.module, module) and (not self.phase or phase in self.phase)):
            return False
        number = next(self._matched)
        return number % self.every == 0 and (self.limit is None or number // self.every < self.limit)


def _matches(patterns: str | Iterable[str] | None, name: str | None) -> bool:
    return not patterns or (name is not None and any(fnmatchcase(name, pattern) for pattern in patterns))
