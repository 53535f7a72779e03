"""`lamina bench layers --instructions`: how many instructions one operation takes under 0 to 4 layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from .cases import CASES, EAGER
from .command import DONE, FAILED
from .gaps import print_gaps
from .instructions import Counts, count_instructions
from .layers import Options, trials_of
from .ours import load_ours
from .peers import HAND_WRITTEN, hand_written
from .progress import Progress, silent, told
from .record import SCHEMA
from .subjects import PLAIN, Subject
from .tables import Table, print_tables
from .timing import Variant, describe_machine
from .trials import WRONG, Gap, Trial
from .users import Users

SOURCE = f"{__name__}:variants"


@dataclass(frozen=True)
class CountFigure:
    """Instructions of one call, and their ratios to plain and to the hand-written wrapper at the same depth."""

    name: str
    op: str
    subject: str
    layers: int
    instructions: float
    to_plain: float | None
    to_hand_written: float | None


@dataclass
class CountResults:
    """All that was counted, by what tool, and why figures are missing."""

    tool: str = ""
    figures: list[CountFigure] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dictionaries only."""
        return {"schema": SCHEMA, "bench": "instructions", "machine": describe_machine(), "budgets": [], **asdict(self)}

    def tables(self) -> Iterator[Table]:
        """One for each operation."""
        for op in dict.fromkeys(each.op for each in self.figures):
            rows = [
                [f"{each.subject}, {each.layers}", f"{each.instructions:,.0f}"]
                + [f"{ratio:.3f}" if ratio else "" for ratio in (each.to_plain, each.to_hand_written)]
                for each in self.figures
                if each.op == op
            ]
            heads = [f"layers ({self.tool})", "instructions a call", "x plain", "x hand-written"]
            yield Table(op, heads, rows)


def trials(op: str, layers: int, user: Users | None) -> list[Trial]:
    """Plain, hand-written, lamina's own and the user's class, at each depth. No other peers: some take minutes."""
    case = next(case for case in CASES if case.op == op)
    subjects: list[Subject] = [PLAIN, hand_written(), *load_ours(), *([user.subject()] if user else [])]
    return [trial for trial in trials_of(case, subjects, layers) if trial.circumstance == EAGER]


def variants(op: str, layers: str, cls: str = "", make: str = "", rtol: str = "") -> list[Variant]:
    """What is counted for one operation: the trials that give the right result. All arguments are text."""
    user = Users(cls, make or None, float(rtol) if rtol else None) if cls else None
    prepared = [trial.prepare() for trial in trials(op, int(layers), user)]
    return [each for each in prepared if isinstance(each, Variant)]


def measured(options: Options, progress: Progress = silent) -> CountResults:
    """Count for all operations of the options, each in a process of its own."""
    results = CountResults()
    user = options.user
    texts = [user.cls, user.make or "", "" if user.rtol is None else str(user.rtol)] if user else []
    for case in options.cases():
        progress(f"{case.op}: counting instructions", 1)
        chosen = trials(case.op, options.layers, user)
        results.gaps += [each for each in (trial.prepare() for trial in chosen) if isinstance(each, Gap)]
        counts = count_instructions(SOURCE, [case.op, str(options.layers), *texts])
        results.tool = counts.tool
        results.figures += [_figure(trial, counts) for trial in chosen if trial.name in counts.instructions]
    return results


def _figure(trial: Trial, counts: Counts) -> CountFigure:
    def ratio(subject: str, layers: int) -> float | None:
        base = f"{subject} | {layers} | {EAGER.name}"
        return counts.ratio(trial.name, base) if base in counts.instructions else None

    return CountFigure(
        f"{trial.case.op} | {trial.name}",
        trial.case.op,
        trial.subject.name,
        trial.layers,
        counts.instructions[trial.name],
        ratio(PLAIN.name, 0),
        ratio(HAND_WRITTEN, trial.layers),
    )


def command(options: Options, *, as_json: bool) -> int:
    """Count, and print the tables, or the JSON alone. Returns the exit status."""
    with told(len(list(options.cases()))) as progress:
        results = measured(options, progress)
    if as_json:
        print(json.dumps(results.to_json(), indent=1))
    else:
        print_tables(list(results.tables()))
        print_gaps(results.gaps, ())
    return FAILED if any(gap.kind == WRONG for gap in results.gaps) else DONE
