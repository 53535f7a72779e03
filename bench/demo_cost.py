"""The demo's look at single operators: their cost under layers of LoggingTensor, and of a hand-written wrapper."""

from __future__ import annotations

from collections.abc import Callable

from .cases import CASES, EAGER
from .layers import add_case
from .ours import LOGGING, load_ours
from .peers import hand_written
from .results import Results
from .subjects import PLAIN
from .timing import Settings, describe_machine
from .trials import Trial

OPS = ("add", "linear", "t", "detach", "add_")
LAYERS = 3


def measure_layers(settings: Settings, progress: Callable[[str], object]) -> Results:
    """Figures and slopes of a few operators. No log is in scope: what is timed is the dispatch of the layers."""
    subjects = [*(subject for subject in load_ours() if subject.name == LOGGING), hand_written()]
    results = Results(describe_machine(), settings)
    results.subjects = {subject.name: subject.origin for subject in [PLAIN, *subjects]}
    for case in CASES:
        if case.op in OPS:
            progress(case.op)
            depths = [(PLAIN, 0), *((subject, depth) for subject in subjects for depth in range(1, LAYERS + 1))]
            add_case(results, case, [Trial(case, subject, depth, EAGER) for subject, depth in depths])
    if results.gaps:
        raise RuntimeError(f"the layers' cost can't be measured: {'; '.join(map(str, results.gaps))}")
    return results
