"""Operators that run another one from a random state: compiled code has them where checkpointing computes anew what
draws random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...subclasses.core.private import OpOverload

_SAVES, _RUNS = "run_and_save_rng_state", "run_with_rng_state"
_CPUS, _OTHERS = 5056, 16  # bytes of a generator's state


def runs_from_state(func: Any) -> bool:
    """Whether ``func`` is one of them."""
    return not isinstance(func, OpOverload) and func.name() in (_SAVES, _RUNS)


def run_from_state(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device | None) -> Any:
    """What it gives, on carriers: the result of the operator, after a state on ``device`` if it is to save that."""
    if func.name() == _RUNS:
        _, op, *rest = args
        return op(*rest, **kwargs)
    op, *rest = args
    nbytes = _CPUS if device is None or device.type == "cpu" else _OTHERS
    state = torch.ops.aten.empty.memory_format([nbytes], dtype=torch.uint8, device=torch.device("meta"))
    return state, op(*rest, **kwargs)
