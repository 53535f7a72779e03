"""``__torch_dispatch__`` of FakeLikeTensor: a look-up of the operator, one of the call, and its replay.

What was not seen before goes the way of every wrapper, through the op table, and is computed. A training step of a
large model is a few hundred different calls, made again and again: 98 % of them end here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..core.boundary import dispatch
from ..core.private import OpOverload, inside_autocast, never_compile
from ..core.schema import OpFacts
from ..core.table import Entry
from .autocast import refuse_autocast
from .cache import replays
from .plan import Run
from .signature import UnknownError, UntellableError, signature

# The first three of a Way, and the operator's entry in the op table.
Ways = dict[OpOverload, tuple[OpFacts, Callable[[], Hashable], bool, Entry]]


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
    if len(types) > 1 or op not in cls._l_ways:
        return _by_table(cls, op, types, args, kwargs)
    try:
        replay = known(cls, op, args, kwargs)
    except (UntellableError, UnknownError):
        replay = None
    return dispatch(cls, op, types, args, kwargs) if replay is None else replay(args, kwargs or {})


def known(
    cls: Any, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None, alone: bool = False
) -> Run | None:
    """The replay of a call that was seen before; the call counts then.

    Raises:
        UntellableError, UnknownError: there is no signature of such arguments.
        StrangerError: ``alone``, and a tensor that is not of ``cls`` is among them.
    """
    found = cls._l_ways.get(op)
    if found is None:
        return None
    facts, state, any_float, entry = found
    key = signature(args, cls, any_float, [facts, cls, state()], alone)
    if kwargs:
        key = (*key, signature(kwargs.values(), cls, any_float, [*kwargs], alone))
    replay = replays.find(key)
    if replay is not None:
        replays.hits += 1
        entry.hits += 1
    return replay


def _by_table(cls: Any, op: OpOverload, types: tuple[type, ...], args: tuple[Any, ...], kwargs: Any) -> Any:
    entry = cls._table[op]  # resolves it, if need be
    way = cls._l_answers.get(op)
    if way is not None and way.straight:
        cls._l_ways[op] = (*way[:3], entry)
    return dispatch(cls, op, types, args, kwargs)


never_compile(answered)
never_compile(known)
never_compile(replayed)
