"""The conformance kit: one call says whether a tensor subclass holds.

``check_subclass`` runs every check on a class; ``conformance_tests`` makes pytest tests of them; ``lamina check`` is
the same on the command line. Reading order: outcome, subject, discovery, check, report, process, run; then ``checks``,
a module or more for each group, with what they share in calls, graphs, structure, schema_trial, world and refusal; and
``sweep``, which runs PyTorch's own operator samples.
"""

from .check import Check, every_check
from .fsdp2 import GathersItsLeaves, check_fsdp2_ready
from .outcome import KnownLimit, MismatchError, NotApplicable
from .pytest_entry import conformance_tests
from .report import Report, Result, Status
from .run import check_subclass
from .subject import Kind, Subject, SubjectError

__all__ = [
    "Check",
    "GathersItsLeaves",
    "Kind",
    "KnownLimit",
    "MismatchError",
    "NotApplicable",
    "Report",
    "Result",
    "Status",
    "Subject",
    "SubjectError",
    "check_fsdp2_ready",
    "check_subclass",
    "conformance_tests",
    "every_check",
]
