"""The plan of a mode that calls on: entering it, the operator called from it, leaving it."""

from __future__ import annotations

from typing import Any

from .parts import INNER, Part, Plan
from .planting import NOTHING, OUTER, Site, frame


def plan_of(site: Site) -> Plan:
    """A handler that hands back nothing, one that calls on and then hands back nothing, and the mode itself."""

    def call_on(_self: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> None:
        func(*args, **kwargs) if kwargs else func(*args)

    plan = frame(site)
    plan.add(site.variant_with(INNER, call_on))
    free, none = ((), ()) if site.trial.case.in_place else OUTER
    plan.parts.append(Part(INNER, (INNER, *none), (NOTHING, *free)))
    return plan
