"""The plan of a class that is known from outside only: its handler called by hand, and what that was seen to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...conformance.inside import inner_tensors
from ...subclasses.core.wrapper import WrapperTensor
from ..cases import tensors_in
from ..timing import Variant
from ..trials import reason_of
from .entries import add_look_up
from .parts import ALIASING, INNER, LOOK_UP, OBSERVING, OWN, UNWRAP, WRAP, Part, Plan, Unmeasured
from .planting import INNER_RESULT, OUTER, Freeing, Site, frame

HANDLER = "handler"
NOT_TOLD_APART = f"inside its __torch_dispatch__: part of {OWN!r}"


def plan_of(site: Site) -> Plan:
    """The handler as a whole, its inner operators, the wrapping; the rest of it is one part."""
    plan = frame(site)
    plan.add(Variant(HANDLER, site.owner.__torch_dispatch__, site.arrival, site.trial.scope))
    known = [INNER]
    _add_inner(site, plan)
    if not site.trial.case.in_place and _add_wrap(site, plan):
        known.append(WRAP)
    named = []
    if issubclass(site.owner, WrapperTensor):
        add_look_up(site, plan)
        named = [part for part in plan.parts if part.name in (LOOK_UP, OBSERVING)]
    # What the handler frees is what these free, so that nothing has to be taken off.
    plan.parts.append(
        Part(
            OWN,
            (HANDLER, *(name for part in named for name in part.minus)),
            (*known, *(name for part in named for name in part.plus)),
        )
    )
    if known == [INNER] and not site.trial.case.in_place:
        free, none = OUTER
        inner_free, inner_none = INNER_RESULT
        own = plan.parts.pop()
        plan.parts.append(Part(OWN, (*own.plus, *inner_free, *none), (*own.minus, *free, *inner_none)))
    hidden = (LOOK_UP, UNWRAP, *([ALIASING] if site.makes_view else []))
    told = {part.name for part in plan.parts}
    plan.unmeasured += [Unmeasured(name, NOT_TOLD_APART) for name in hidden if name not in told]
    return plan


def _add_inner(site: Site, plan: Plan) -> None:
    """The operators that the handler calls, called again with the same arguments."""
    made = site.inner_calls()

    def again() -> None:
        for func, args, kwargs in made:
            func(*args, **kwargs) if kwargs else func(*args)

    alone = len(made) == 1 and not made[0][2]
    function, args = (made[0][0], tuple(made[0][1])) if alone else (again, ())
    plan.add(Variant(INNER, function, args, site.trial.scope))
    plan.parts.append(Part(INNER, (INNER,)) if site.trial.case.in_place else _freed(INNER, INNER_RESULT))
    plan.notes.append(f"inner op: {', '.join(str(func) for func, _, _ in made) or 'none'}")


def _freed(name: str, freeing: Freeing) -> Part:
    """A variant without what it freed."""
    free, none = freeing
    return Part(name, (name, *none), free)


def _add_wrap(site: Site, plan: Plan) -> bool:
    """The result made again of its inner tensors, which it then does not free; False where that cannot be done."""
    results = [each for each in tensors_in(site.result()) if isinstance(each, site.owner)]
    if len(results) != 1:
        plan.unmeasured.append(Unmeasured(WRAP, f"the op gives {len(results)} of its class, not one"))
        return False
    function, args = _rebuilding(results[0])
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001  # whatever a foreign constructor raises is the reason
        plan.unmeasured.append(Unmeasured(WRAP, f"its constructor does not take its inner tensors: {reason_of(error)}"))
        return False
    plan.add(Variant(WRAP, function, args, site.trial.scope))
    (free, none), (inner_free, inner_none) = OUTER, INNER_RESULT
    plan.parts.append(Part(WRAP, (WRAP, *none, *inner_free), (*free, *inner_none)))
    return True


def _rebuilding(result: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a wrapper is made of what it holds: by the flatten protocol, or by its constructor."""
    cls = type(result)
    if hasattr(result, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__"):
        names, context = result.__tensor_flatten__()
        inner: dict[str, Tensor] = {name: getattr(result, name) for name in names}
        return cls.__tensor_unflatten__, (inner, context, result.size(), result.stride())
    return cls, tuple(inner_tensors(result))
