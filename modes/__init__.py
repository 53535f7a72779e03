"""Modes see a scope where tensor types see their instances: logs, counters."""

from ..subclasses.logging_tensor import logged_backend
from .compiled_code import CompiledRegionWarning
from .dispatch_log import DispatchLog
from .function_log import FunctionLog
from .op_counter import OpCounter
from .trace import DispatcherTrace, NestedTraceError

__all__ = [
    "CompiledRegionWarning",
    "DispatchLog",
    "DispatcherTrace",
    "FunctionLog",
    "NestedTraceError",
    "OpCounter",
    "logged_backend",
]
