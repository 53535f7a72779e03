"""How FakeLikeTensor answers one operator: replayed where the signature was seen before, computed where not."""

from __future__ import annotations

from typing import Any

import torch

from ..core.errors import LayoutError
from ..core.fields import tensors_in
from ..core.private import OpOverload, no_function_modes
from ..core.schema import OpFacts, facts_of, value_of
from ..core.unwrap import counting_versions, where_views_work
from .cache import replays
from .checks import check
from .geometry import follow
from .kernels import refusal
from .memory import inside_storage, names_memory, pairs_of, refuse_folds, watching
from .oracle import META as _NOWHERE
from .oracle import Oracle, claim_of
from .plan import Build, Plan, Run, places_in, plan_of
from .refusals import translated
from .signature import UnknownError, UntellableError, signature, way_of
from .tracing import claiming


def answer_to(cls: Any, op: OpOverload, traced: Run, build: Build) -> Run:
    """``traced`` answers where PyTorch traces."""
    facts, traced = facts_of(op), claiming(cls, traced)
    way = way_of(facts)
    cls._l_answers[op] = way._replace(straight=way.straight and not names_memory(facts))
    state, any_float = way.state, way.any_float

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            key = signature(args, cls, any_float, [facts, cls, state()])
            if kwargs:
                key = (*key, signature(kwargs.values(), cls, any_float, [*kwargs]))
        except UntellableError:
            return traced(args, kwargs)
        except UnknownError:
            return _asked(cls, facts, args, kwargs, build)[0].run(args, kwargs)
        replay = replays.find(key)
        if replay is not None:
            replays.hits += 1
            return replay(args, kwargs)
        plan, lasts = _asked(cls, facts, args, kwargs, build)
        if lasts:
            replays.learn(key, plan)
        return plan.run(args, kwargs)

    return counting_versions(facts, where_views_work(facts, inside_storage(facts, run)))


def _asked(cls: type, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], build: Build) -> tuple[Plan, bool]:
    """The plan of a call, and whether it holds for the next one of this signature."""
    _refuse_to_write_data(cls, facts, args, kwargs)
    check(facts.op, args, kwargs)
    refuse_folds(facts, args, kwargs)
    oracle = Oracle(cls, claim_of(cls, args, kwargs, _NOWHERE))
    with no_function_modes():
        given, named = oracle.stand_ins(args, kwargs)
    places = places_in(given, named)
    try:
        with no_function_modes():  # torch's decompositions are no calls of the program
            result = oracle.compute(facts.op, given, named)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised
        # By no name of this frame, which the traceback holds: it would hold the error, and with it the operands.
        raise refusal(facts, args, kwargs) or translated(facts.op, error, _fakes_in(cls, args, kwargs))  # noqa: B904
    refused = refusal(facts, args, kwargs, result)
    if refused is not None:
        try:
            raise refused
        finally:
            del refused  # as above
    for tensor in tensors_in(result):
        if tensor.layout is not torch.strided:
            raise LayoutError(cls, "meta", tensor.layout)
    pairs = pairs_of(facts, args, kwargs)
    changed = follow(places, cls, args, kwargs)
    plan = plan_of(result, places, build)
    return plan._replace(run=watching(pairs, plan.run)), not changed


def _fakes_in(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [tensor for tensor in tensors_in((args, kwargs)) if isinstance(tensor, cls)]


def _refuse_to_write_data(cls: type, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A fake written into a tensor with data would leave it as it was, and nobody would know."""
    for argument in facts.written:
        for target in tensors_in(value_of(argument, args, kwargs)):
            if _has_data(target, cls):
                raise RuntimeError(
                    f"{facts.op} would write a {cls.__name__} into a real tensor of shape {tuple(target.shape)} on "
                    f"{target.device}, and there are no values to write. Make the target a {cls.__name__}, too: "
                    f"inside FakeLikeMode, or by {cls.__name__}.from_tensor(target)."
                )
    if facts.op is torch.ops.aten.copy_.default and args[1].dim() and _has_data(args[1], cls):
        raise RuntimeError(
            f"real data of shape {tuple(args[1].shape)} would be written into a {cls.__name__}, which can hold none. "
            f"Pass {cls.__name__}.from_tensor(source), or write into a real tensor."
        )


def _has_data(tensor: torch.Tensor, cls: type) -> bool:
    return not isinstance(tensor, cls) and tensor.device != _NOWHERE
