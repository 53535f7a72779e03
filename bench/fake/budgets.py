"""What computing metadata may cost: each budget with what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget import Budget
from ..timing import Summary
from .cases import OPERATOR, STEP, cases
from .results import Results
from .subjects import FAKE_LIKE, FAKE_TENSOR, PLAIN, WITHOUT_MODE

AT_MOST_US = 8.0
OPERATOR_FASTER = 10.0
STEP_FASTER = {"16-layer MLP": 12.0, "4-layer GPT": 10.0}
AT_MOST_REAL = 3.0


def budgets(results: Results) -> Iterator[Budget]:
    """Of operators whose signature was seen before, and of training steps."""
    for case in cases():
        if case.kind == OPERATOR:
            for subject in (FAKE_LIKE, WITHOUT_MODE):
                text = f"µs an operator, {case.what}, {subject}, its signature seen before"
                yield Budget(text, _microseconds(results, case.what, subject), at_most=AT_MOST_US)
            text = f"operator, {case.what}: {FAKE_LIKE}, times as fast as {FAKE_TENSOR}"
            yield Budget(text, _faster(results, OPERATOR, case.what), at_least=OPERATOR_FASTER)
    for case in cases():
        if case.kind == STEP:
            at_least = STEP_FASTER[case.what.partition(",")[0]]
            text = f"training step, {case.what}: {FAKE_LIKE}, times as fast as {FAKE_TENSOR}"
            yield Budget(text, _faster(results, STEP, case.what), at_least=at_least)
            text = f"training step, {case.what}: {FAKE_LIKE} / the real step"
            yield Budget(text, results.ratio(STEP, case.what, FAKE_LIKE, PLAIN), at_most=AT_MOST_REAL)


def _faster(results: Results, kind: str, what: str) -> Summary | None:
    return results.ratio(kind, what, FAKE_TENSOR, FAKE_LIKE)


def _microseconds(results: Results, what: str, subject: str) -> Summary | None:
    found = results.figure(OPERATOR, what, subject)
    return None if found is None else Summary.of([each / 1e3 for each in found.rounds_ns])
