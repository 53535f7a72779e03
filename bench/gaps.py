"""Why figures are missing, in words."""

from __future__ import annotations

from collections.abc import Iterable

from .cases import EAGER
from .subjects import Absence
from .trials import Gap


def gap_lines(gaps: Iterable[Gap], absences: Iterable[Absence]) -> list[str]:
    """One line for each subject, circumstance and reason."""
    ops: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        where = gap.subject if gap.circumstance == EAGER.name else f"{gap.subject}, {gap.circumstance}"
        found = ops.setdefault((where, gap.reason), [])
        if gap.op not in found:
            found.append(gap.op)
    lines = [f"{where}: {', '.join(names)}: {reason}" for (where, reason), names in ops.items()]
    return [*lines, *(f"{absence.subject}: {absence.reason}" for absence in absences)]


def print_gaps(gaps: Iterable[Gap], absences: Iterable[Absence]) -> None:
    """Print them, if there are any."""
    lines = gap_lines(gaps, absences)
    if lines:
        print("Gaps:")
        print("\n".join(f"- {line}" for line in lines))
