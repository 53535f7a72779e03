"""The dispatcher's decisions, made visible.

Reading order: slots, keyset, decision, handlers, dispatcher_trace, tree; operators and tables answer without a call.
"""

from .decision import Decision
from .dispatcher_trace import DispatcherTrace, NestedTraceError
from .keyset import KeySets
from .operators import UnknownOperatorError, overload_of
from .slots import Kernel, Slot
from .tables import Table, TensorKeys, UnknownKeyError, dispatch_keys, explain_table, which_ops, why

__all__ = [
    "Decision",
    "DispatcherTrace",
    "Kernel",
    "KeySets",
    "NestedTraceError",
    "Slot",
    "Table",
    "TensorKeys",
    "UnknownKeyError",
    "UnknownOperatorError",
    "dispatch_keys",
    "explain_table",
    "overload_of",
    "which_ops",
    "why",
]
