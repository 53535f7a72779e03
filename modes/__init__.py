"""Modes see a scope where tensor types see their instances: logs, counters."""

from ..subclasses.logging_tensor import logged_backend
from .compiled_code import CompiledRegionWarning
from .dispatch_log import DispatchLog
from .function_log import FunctionLog
from .memory_log import MemoryLog
from .nan_guard import NanGuard, NonFiniteError, NonFiniteWarning
from .op_counter import OpCounter
from .trace import DispatcherTrace, NestedTraceError, dispatch_keys, explain_table, op_card, which_ops, why

__all__ = [
    "CompiledRegionWarning",
    "DispatchLog",
    "DispatcherTrace",
    "FunctionLog",
    "MemoryLog",
    "NanGuard",
    "NestedTraceError",
    "NonFiniteError",
    "NonFiniteWarning",
    "OpCounter",
    "dispatch_keys",
    "explain_table",
    "logged_backend",
    "op_card",
    "which_ops",
    "why",
]
