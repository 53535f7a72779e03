"""The demo's look at single operators: their cost under layers of LoggingTensor, and of a hand-written wrapper."""

from __future__ import annotations

from .cases import CASES, EAGER
from .layers import add_case
from .ours import LOGGING, load_ours
from .peers import hand_written
from .progress import Progress
from .results import Results
from .subjects import PLAIN
from .timing import Settings, describe_machine
from .trials import Trial

OPS = ("add", "linear", "t", "detach", "add_")
LAYERS = 3


def measure_layers(settings: Settings, progress: Progress) -> Results:
    """Figures and slopes of a few operators. No log is in scope: what is timed is the dispatch of the layers."""
    subjects = [*(subject for subject in load_ours() if subject.name == LOGGING), hand_written()]
    results = Results(describe_machine(), settings)
    results.note([PLAIN, *subjects])
    for case in CASES:
        if case.op in OPS:
            progress(f"cost of {case.op}", 1)
            depths = [(PLAIN, 0), *((subject, depth) for subject in subjects for depth in range(1, LAYERS + 1))]
            add_case(results, case, [Trial(case, subject, depth, EAGER) for subject, depth in depths])
    if results.gaps:
        raise RuntimeError(f"the layers' cost can't be measured: {'; '.join(map(str, results.gaps))}")
    return results
