"""What autocast does to an operator's arguments, seen rather than looked up.

The lists of operators are C++ and differ by device. Here the kernel that autocast registered is called with arguments
of the right types and no particular shapes, and stopped where it calls the operator in turn: nothing is computed, and
what arrives there is what autocast made of the arguments. For CUDA the tensors are fake ones: no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import FakeTensorMode, OpOverload, every_decision, kernel_at, require, schema_of

DEVICES = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}

# An argument of each kind, by the name of its type in C++.
_VALUES: dict[str, Any] = {
    "IntType": 1,
    "SymIntType": 1,
    "FloatType": 1.0,
    "NumberType": 1.0,
    "BoolType": False,
    "StringType": "dimname::n",  # where it names a dim, torch 2.11 makes a symbol of it, with a namespace
}


class Policy(Enum):
    """By the names that torch gives to all but the last two."""

    LOWER_PRECISION_FP = "casts to the dtype of autocast"
    FP32 = "casts to float32"
    FP32_SET_OPT_DTYPE = "asks for a result in float32 where no dtype is given"
    FP32_APPEND_DTYPE = "calls the overload that takes a dtype, for a result in float32"
    PROMOTE = "casts to the widest dtype of the arguments"
    REFUSED = "refuses the operator"
    NO_CAST = "casts nothing"


class _StoppedError(Exception):
    """The operator was reached."""


@dataclass(frozen=True)
class _Arrival:
    """How the operator was called in turn. ``first``: the dtype of its first tensor (indices, which come later, are
    left alone); ``asked``: the dtypes among its arguments that are no tensor's."""

    op: str
    first: torch.dtype
    asked: frozenset[torch.dtype]


def observed_policy(op: OpOverload, key: str) -> Policy:
    """What the kernel of ``op`` at an autocast key does with its arguments, and the one it has to be there. ``key``:
    one of ``DEVICES``.

    Raises what the kernel raises when it is called with arguments that it doesn't expect, and ``UnseenError`` where
    this build of torch doesn't let itself be observed.
    """
    require("the dispatcher's decisions")
    low = torch.get_autocast_dtype(DEVICES[key])
    try:
        wide, narrow = _arrival(op, key, [torch.float32]), _arrival(op, key, [low])
    except RuntimeError as error:
        if "unsafe to autocast" in str(error):
            return Policy.REFUSED
        raise
    if wide.asked or narrow.asked:
        return Policy.FP32_SET_OPT_DTYPE if wide.op == op.name() else Policy.FP32_APPEND_DTYPE
    if wide.first == narrow.first:
        return Policy.FP32 if wide.first == torch.float32 else Policy.LOWER_PRECISION_FP
    mixed = _arrival(op, key, [low, torch.float32])
    return Policy.PROMOTE if mixed.first == torch.float32 else Policy.NO_CAST


def _arrival(op: OpOverload, key: str, dtypes: list[torch.dtype]) -> _Arrival:
    arrivals: list[_Arrival] = []

    def decide(reached: OpOverload, _: str, __: str) -> Callable[..., Any]:
        def run(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if _packet(reached) != _packet(op):  # a cast
                return kernel(*args, **kwargs)
            given = (*args, *kwargs.values())
            first = next(each.dtype for value in given for each in tensors_in(value))
            asked = frozenset(value for value in given if isinstance(value, torch.dtype))
            arrivals.append(_Arrival(reached.name(), first, asked))
            raise _StoppedError

        return run

    with _scope(DEVICES[key]):
        args, kwargs = _arguments(op, DEVICES[key], dtypes)
        try:
            with every_decision(decide):
                kernel_at(op, key)(*args, **kwargs)
        except _StoppedError:
            return arrivals[0]
    raise RuntimeError(f"the kernel of {op.name()} at {key} did not call the operator in turn")


def _packet(op: OpOverload) -> str:
    name: str = op.name()
    return name.partition(".")[0]


@contextmanager
def _scope(device: str) -> Iterator[None]:
    """Tensors of ``device`` can be made inside, and autocast's cache of cast weights stays as it is."""
    with torch.no_grad(), nullcontext() if device == "cpu" else FakeTensorMode():
        yield


def _arguments(op: OpOverload, device: str, dtypes: list[torch.dtype]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the types that the schema has; the tensors get the dtypes in turn."""
    count = 0

    def tensor() -> torch.Tensor:
        nonlocal count
        count += 1
        return torch.zeros(1, dtype=dtypes[(count - 1) % len(dtypes)], device=device)

    def value(kind: Any) -> Any:
        if isinstance(kind, torch.TensorType):
            return tensor()
        if isinstance(kind, torch.ListType):
            return [value(kind.getElementType()), value(kind.getElementType())]
        if isinstance(kind, torch.OptionalType):
            inner = kind.getElementType()
            return value(inner) if isinstance(inner, (torch.TensorType, torch.ListType)) else None
        return _VALUES.get(kind.kind())

    arguments = schema_of(op).arguments
    args = [value(each.type) for each in arguments if not each.kwarg_only]
    needed = [each for each in arguments if each.kwarg_only and not each.has_default_value()]
    return args, {each.name: value(each.type) for each in needed}
