"""What a class chooses: its fallback, the type of its gradients; and the scope in which a fallback is an error."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Fallback(enum.Enum):
    """What happens to an operator without a rule."""

    ERROR = "error"  # MissingRuleError
    UNWRAP = "unwrap"  # run on the inner tensor, wrap the result; for classes with exactly one inner tensor
    PLAIN = "plain"  # run on decoded values; the result is plain, writes are written back


class Gradients(enum.Enum):
    """The type of the gradient of a wrapped leaf."""

    SAME = "same"  # an instance of the class: for observers
    PLAIN = "plain"  # a plain tensor of the logical dtype: for representations


class _Strict(threading.local):
    depth = 0


_state = _Strict()


def is_strict() -> bool:
    return _state.depth > 0


@contextmanager
def strict() -> Iterator[None]:
    """A scope in which reaching the PLAIN fallback raises ``FallbackError`` instead of running on decoded values.

    For tests and hot loops: the hits that it forbids are those that ``lamina.op_table`` counts. Holds for the current
    thread; scopes nest. UNWRAP loses neither class nor values, so it is allowed, as are rules, decomposition and the
    structural rules of the base class.

    Raises:
        FallbackError: from the operator that reached a fallback; nothing was computed.
    """
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
