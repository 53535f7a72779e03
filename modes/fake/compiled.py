"""What torch.compile makes inside FakeLikeMode for Inductor, whose code would have to run."""

from __future__ import annotations

import threading
from typing import Any

from ...subclasses.core.private import compiler_of_backend

PARTITIONED = "aot_eager_decomp_partition"


class _Counts(threading.local):
    graphs = 0


_counts = _Counts()


def without_inductor(_: Any, graph: Any, inputs: Any, **__: Any) -> Any:
    """In place of Inductor: compiles by the decompositions and the partitioner that it uses, so that the same is saved
    for the backward; the operators run one by one, on FakeLikeTensors."""
    _counts.graphs += 1
    return compiler_of_backend(PARTITIONED)(graph, inputs)


def graphs_for_inductor() -> int:
    """How many graphs this thread has compiled so."""
    return _counts.graphs
