"""How FakeLikeTensor answers one operator: replayed where the signature was seen before, computed where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.private import OpOverload
from ..core.schema import facts_of
from ..core.unwrap import counting_versions, where_views_work
from .geometry import follow
from .metadata import Metadata
from .oracle import META as _NOWHERE
from .oracle import Oracle, claim_of
from .plan import Plan, places_in, plan_of
from .signature import UntellableError, signature

Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def answer_to(cls: type, op: OpOverload, traced: Run, make: Callable[[Metadata], Any]) -> Run:
    """``traced`` answers where PyTorch traces."""
    plans: dict[Any, Plan] = {}
    any_float = torch.Tag.pointwise in op.tags or op.name().startswith(("aten::_foreach_", "aten::_fused_"))
    facts = facts_of(op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            key = signature(args, cls, any_float)
            if kwargs:
                key = (*key, *kwargs, *signature(kwargs.values(), cls, any_float))
        except UntellableError:
            return traced(args, kwargs)
        full = (key, torch.get_default_dtype())
        plan = plans.get(full)
        if plan is None:
            plan, lasts = _asked(cls, op, args, kwargs, make)
            if lasts:
                plans[full] = plan
        return plan(args, kwargs)

    return counting_versions(facts, where_views_work(facts, run))


def _asked(
    cls: type, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], make: Callable[[Metadata], Any]
) -> tuple[Plan, bool]:
    """The plan of a call, and whether it holds for the next one of this signature."""
    oracle = Oracle(cls, claim_of(cls, args, kwargs, _NOWHERE))
    given, named = oracle.stand_ins(args, kwargs)
    places = places_in(given, named)
    result = oracle.compute(op, given, named)
    changed = follow(places, cls, args, kwargs)
    return plan_of(result, places, make), not changed
