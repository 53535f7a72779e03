"""Why figures are missing, in words."""

from __future__ import annotations

from collections.abc import Iterable

from .cases import EAGER
from .subjects import Absence
from .trials import NOISY, WRONG, Gap

REFUSED = "Refused, so not timed: the result is not what plain torch gives"
TOO_NOISY = "too noisy to be given: measure for longer, on the CPU's clock, or on a quieter machine"


def gap_lines(gaps: Iterable[Gap], absences: Iterable[Absence]) -> list[str]:
    """One line for each subject and reason, of the first layer and circumstance that it holds for; noise by subject."""
    ops: dict[tuple[str, str], list[str]] = {}
    told: set[tuple[str, ...]] = set()
    for gap in gaps:
        error = (gap.subject, gap.op, gap.kind, gap.reason.partition(":")[0])
        if error in told:
            continue
        told.add(error)
        plainly = gap.kind == NOISY or gap.circumstance == EAGER.name
        where = gap.subject if plainly else f"{gap.subject}, {gap.circumstance}"
        found = ops.setdefault((where, TOO_NOISY if gap.kind == NOISY else gap.reason), [])
        if gap.op not in found:
            found.append(gap.op)
    lines = [f"{where}: {', '.join(names)}: {reason}" for (where, reason), names in ops.items()]
    return [*lines, *(f"{absence.subject}: {absence.reason}" for absence in absences)]


def print_gaps(gaps: Iterable[Gap], absences: Iterable[Absence]) -> None:
    """Print them, if there are any: wrong results apart from what is merely not there."""
    gaps = list(gaps)
    missing = gap_lines((gap for gap in gaps if gap.kind != WRONG), absences)
    for title, lines in (("Gaps:", missing), (REFUSED, gap_lines((gap for gap in gaps if gap.kind == WRONG), ()))):
        if lines:
            print("\n".join([title, *(f"- {line}" for line in lines)]))
