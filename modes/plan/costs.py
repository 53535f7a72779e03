"""What each operator of a step costs: floating-point operations, bytes moved, and how long a device takes at best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.schema import Kind, OpFacts, value_of
from ..op_costs import OpCosts, Place
from .devices import Device
from .formulas import register_missing_formulas
from .ledger import Step, leaves

_UNMOVED = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "lift_fresh",
    "_unsafe_view",
)
_GATHERING = ("embedding", "gather", "index", "index_select")  # what they read is as much as they give


class OpCost(NamedTuple):
    """Of one operator: the dtype that it computes in, operations, bytes read and written."""

    phase: str
    module: str | None
    dtype: str | None
    flops: int
    nbytes: int

    def seconds_on(self, device: Device) -> float:
        """The roofline: as long as the slower of computing and moving takes."""
        return max(self.flops / device.flops_per_second(self.dtype), self.nbytes / device.bytes_per_second)


class StepCosts:
    """Sums by place in ``sums``; each operator that computes or moves something in ``ops``."""

    def __init__(self) -> None:
        register_missing_formulas()
        self.sums = OpCosts()
        self.ops: list[OpCost] = []

    def add(
        self,
        step: Step,
        func: Any,
        facts: OpFacts | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        dtype: str | None,
        phase: Any,
    ) -> None:
        """Count one call."""
        nbytes = bytes_moved(facts, args, kwargs, result)
        cost = self.sums.add(Place(phase, step.module, step.op, dtype), func, args, kwargs, result, nbytes)
        if cost.flops or cost.nbytes:
            self.ops.append(OpCost(phase, step.module, dtype, cost.flops, cost.nbytes))

    def seconds_on(self, device: Device) -> dict[str, float]:
        """The roofline by phase."""
        found: dict[str, float] = {}
        for op in self.ops:
            found[op.phase] = found.get(op.phase, 0.0) + op.seconds_on(device)
        return found


def bytes_moved(facts: OpFacts | None, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """What is given is read once, what is returned or changed is written once; views move nothing. A gathering operator
    reads as much as it gives, and its indices."""
    if facts is not None:
        name = facts.op.overloadpacket.__name__
        if Kind.VIEW in facts.kinds or name in _UNMOVED:
            return 0
        if name in _GATHERING:
            return 2 * _nbytes(result) + _nbytes(tuple(args)[1:])
    given = _nbytes((args, dict(kwargs)))
    if facts is None or not facts.written:
        return given + _nbytes(result)
    return given + _nbytes([value_of(each, tuple(args), dict(kwargs)) for each in facts.written])


def _nbytes(values: Any) -> int:
    return sum(
        min(leaf.nbytes, leaf.untyped_storage().nbytes()) for tensor in tensors_in(values) for leaf, _ in leaves(tensor)
    )
