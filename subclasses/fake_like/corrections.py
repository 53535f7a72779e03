"""Where torch's fake tensors differ from the real operators: what is checked before, and what is put right after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.private import OpOverload

Check = Callable[..., None]
Compute = Callable[[OpOverload, Sequence[Any], Mapping[str, Any]], Any]

CHECKS: dict[OpOverload, Check] = {}
CORRECTIONS: dict[OpOverload, Callable[..., Any]] = {}


def check(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises what the real operator raises and torch's fake one doesn't."""
    found = CHECKS.get(op)
    if found is not None:
        found(*args, **kwargs)


def corrected(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], compute: Compute) -> Any:
    """``compute(op, args, kwargs)``, put right where torch is known to be wrong."""
    result = compute(op, args, kwargs)
    found = CORRECTIONS.get(op)
    return result if found is None else found(result, *args, **kwargs)
