"""The dispatcher's decisions, made visible.

Reading order: slots, keyset, decision, handlers, dispatcher_trace, tree; operators, tables, packaged and op_card
answer without a call.
"""

from ...subclasses.core.private import UnseenError
from .decision import Decision
from .dispatcher_trace import DispatcherTrace, NestedTraceError
from .keyset import KeySets
from .op_card import OpCard, op_card
from .operators import UnknownOperatorError, overload_of
from .packaged import MissingSourcesError
from .slots import Kernel, Slot
from .tables import Table, TensorKeys, UnknownKeyError, dispatch_keys, explain_table, which_ops, why

__all__ = [
    "Decision",
    "DispatcherTrace",
    "Kernel",
    "KeySets",
    "MissingSourcesError",
    "NestedTraceError",
    "OpCard",
    "Slot",
    "Table",
    "TensorKeys",
    "UnknownKeyError",
    "UnknownOperatorError",
    "UnseenError",
    "dispatch_keys",
    "explain_table",
    "op_card",
    "overload_of",
    "which_ops",
    "why",
]
