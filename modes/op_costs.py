"""What operators cost: floating-point operations and bytes moved, by phase, module, operator and dtype."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ..subclasses.core.fields import leaf_tensors, tensors_in
from ..subclasses.core.private import OpOverload, strided_parts
from ..subclasses.interop.quiet import quiet_import
from ..subclasses.logging_tensor.record import Phase


class Place(NamedTuple):
    """What costs are counted for. ``dtype``: of the first tensor among the results, else the arguments."""

    phase: Phase
    module: str | None
    op: str
    dtype: str | None


@dataclass
class Cost:
    """``flops``: floating-point operations, a multiplication and an addition being two, by the formulas of
    ``torch.utils.flop_counter``; ``nbytes``: of the tensors given and returned, wrappers by what they hold.
    """

    calls: int = 0
    flops: int = 0
    nbytes: int = 0

    def __iadd__(self, other: Cost) -> Cost:
        self.calls += other.calls
        self.flops += other.flops
        self.nbytes += other.nbytes
        return self


class OpCosts:
    """Costs by place. ``by("phase")``, ``by("module")``, ``by("op")`` and ``by("dtype")`` are sums."""

    def __init__(self) -> None:
        self._costs: dict[Place, Cost] = {}
        self._lock = threading.Lock()
        self.without_formula: set[str] = set()

    def add(
        self,
        place: Place,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        nbytes: int | None = None,
    ) -> Cost:
        """Count one call, and return what it costs. ``nbytes``: where the caller knows better which bytes move."""
        flops = _flops(func, args, kwargs, result)
        if flops is None:
            self.without_formula.add(place.op)
        cost = Cost(1, flops or 0, _nbytes((args, dict(kwargs), result)) if nbytes is None else nbytes)
        with self._lock:
            self._costs.setdefault(place, Cost()).__iadd__(cost)
        return cost

    @property
    def total(self) -> Cost:
        """All of it."""
        return _sum(self._costs.values())

    def by(self, what: str) -> dict[Any, Cost]:
        """The sums for each phase, module, operator or dtype, the most operations first.

        Raises:
            ValueError: ``what`` is none of the four.
        """
        if what not in Place._fields:
            raise ValueError(f"by({what!r}): costs are summed by {', '.join(Place._fields)}")
        found: dict[Any, Cost] = {}
        for place, cost in self._costs.items():
            found.setdefault(getattr(place, what), Cost()).__iadd__(cost)
        return dict(sorted(found.items(), key=lambda item: (-item[1].flops, -item[1].nbytes)))

    def to_json(self) -> list[dict[str, Any]]:
        """A record for each place."""
        return [{**place._asdict(), **vars(cost)} for place, cost in self._costs.items()]


def dtype_of(args: Sequence[Any], result: Any) -> str | None:
    """The dtype that a call counts for."""
    first = next(iter([*tensors_in(result), *tensors_in(args)]), None)
    return None if first is None else str(first.dtype).removeprefix("torch.")


@cache
def flop_counter() -> Any:
    """``torch.utils.flop_counter``, imported where something is counted: it logs a line where there is no Triton."""
    return quiet_import("torch.utils.flop_counter")


def _flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int | None:
    formula: Callable[..., int] | None = flop_counter().flop_registry.get(getattr(func, "overloadpacket", func))
    if formula is None or not isinstance(func, OpOverload):
        return None
    return int(formula(*args, **kwargs, out_val=result))


def _nbytes(values: Any) -> int:
    """Of each tensor once: in place, what is written is an argument and the result."""
    leaves = {id(leaf): leaf for tensor in tensors_in(values) for leaf in leaf_tensors(tensor)}
    return sum(part.nbytes for leaf in leaves.values() for part in strided_parts(leaf))


def _sum(costs: Any) -> Cost:
    total = Cost()
    for cost in costs:
        total += cost
    return total
