"""Judge a tensor subclass by PyTorch's own operator samples.

``sweep(Candidate(...))`` runs every sample of ``op_db`` plain and with all its tensors wrapped, and reports each
difference in values, metadata, types, mutated inputs and gradients. Reading order: database, samples, compare,
decoding, report, run.
"""

from .compare import Candidate, MismatchError
from .database import Operator, operators, shard
from .decoding import DecodingCandidate
from .report import Failure, Report
from .run import count_cases, sweep, sweep_errors
from .samples import DTYPES, LIMIT, VARIANTS

__all__ = [
    "DTYPES",
    "LIMIT",
    "VARIANTS",
    "Candidate",
    "DecodingCandidate",
    "Failure",
    "MismatchError",
    "Operator",
    "Report",
    "count_cases",
    "operators",
    "shard",
    "sweep",
    "sweep_errors",
]
