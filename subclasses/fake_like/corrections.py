"""Where torch's fake tensors give other metadata than the real operators: a table, with the reason of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..core.private import OpOverload

aten = torch.ops.aten
Compute = Callable[[OpOverload, Sequence[Any], Mapping[str, Any]], Any]


def corrected(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], compute: Compute) -> Any:
    """``compute(op, args, kwargs)``, put right where torch is known to be wrong."""
    found = _CORRECTIONS.get(op)
    return compute(op, args, kwargs) if found is None else found(compute, *args, **kwargs)


def _addbmm_(compute: Compute, self: Any, *args: Any, **kwargs: Any) -> Any:
    """The real one resizes its operand, which broadcasts; the fake one writes to it, and fails."""
    result = compute(aten.addbmm.default, (self, *args), kwargs)
    return compute(aten.resize_.default, (self, result.shape), {}) if result.shape != self.shape else self


_CORRECTIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.addbmm_.default: _addbmm_,
}
