"""``__torch_dispatch__`` of FakeLikeTensor: a look-up of the operator, one of the call, and its replay.

What was not seen before goes the way of every wrapper, through the op table, and is computed. A training step of a
large model is a few hundred different calls, made again and again: 98 % of them end here.
"""

from __future__ import annotations

from typing import Any

from ..core.boundary import dispatch
from ..core.private import OpOverload, inside_autocast, never_compile
from .autocast import refuse_autocast
from .cache import replays
from .signature import UnknownError, UntellableError, Way, signature

Ways = dict[OpOverload, "tuple[Way, Any] | None"]


def answered(
    cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """``replayed``, unless autocast would have to be followed, which takes FakeLikeMode."""
    if inside_autocast():
        refuse_autocast(cls, op, args, kwargs)
    return replayed(cls, op, types, args, kwargs)


def replayed(
    cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """The replay of the call, or what the op table answers."""
    found = cls._l_ways.get(op)
    if found is None or len(types) > 1:
        return _by_table(cls, op, types, args, kwargs)
    (facts, state, any_float), entry = found
    try:
        key = signature(args, cls, any_float, [facts, cls, state()])
        if kwargs:
            key = (*key, signature(kwargs.values(), cls, any_float, [*kwargs]))
    except (UntellableError, UnknownError):
        return dispatch(cls, op, types, args, kwargs)
    replay = replays.find(key)
    if replay is None:
        return dispatch(cls, op, types, args, kwargs)
    replays.hits += 1
    entry.hits += 1
    return replay(args, kwargs or {})


def _by_table(cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...], kwargs: Any) -> Any:
    entry = cls._table[op]  # resolves it, if need be
    way = cls._l_answers.get(op)
    if way is not None and way.straight:
        cls._l_ways[op] = (way[:3], entry)
    return dispatch(cls, op, types, args, kwargs)


never_compile(answered)
never_compile(replayed)
