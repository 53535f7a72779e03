"""Modes see a scope where tensor types see their instances: logs, counters."""

from ..subclasses.logging_tensor import logged_backend
from .compiled_code import CompiledRegionWarning
from .dispatch_log import DispatchLog
from .fake import FakeLikeMode, RealTensorError, fake_like
from .function_log import FunctionLog
from .log_diff import LogDifference, diff_logs
from .memory_log import MemoryLog
from .nan_guard import NanGuard, NonFiniteError, NonFiniteWarning
from .op_counter import NoCostsError, OpCounter
from .trace import DispatcherTrace, NestedTraceError, dispatch_keys, explain_table, op_card, which_ops, why

__all__ = [
    "CompiledRegionWarning",
    "DispatchLog",
    "DispatcherTrace",
    "FakeLikeMode",
    "FunctionLog",
    "LogDifference",
    "MemoryLog",
    "NanGuard",
    "NestedTraceError",
    "NoCostsError",
    "NonFiniteError",
    "NonFiniteWarning",
    "OpCounter",
    "RealTensorError",
    "diff_logs",
    "dispatch_keys",
    "explain_table",
    "fake_like",
    "logged_backend",
    "op_card",
    "which_ops",
    "why",
]
