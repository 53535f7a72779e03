"""FakeLikeMode: inside, factories make FakeLikeTensors, and real tensors don't mix with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import torch

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import (
    FAKE_SLOT,
    PROFILER_MARKS,
    TRACERS,
    OpOverload,
    TorchDispatchMode,
    as_if_devices_were_there,
    never_compile,
    only_lift_cpu_tensors,
    put_in_slot,
    take_from_slot,
)
from ...subclasses.core.schema import facts_of
from ...subclasses.fake_like import FakeLikeTensor
from ...subclasses.fake_like.hot import known, replayed
from ...subclasses.fake_like.signature import StrangerError, UnknownError, UntellableError
from .adafactor import scaled
from .arrivals import META, Arrivals, are_numbers
from .autocast import casting
from .compiled import without_inductor
from .functions import Functions
from .random_state import run_from_state, runs_from_state

_OURS = (FakeLikeTensor,)
_answer = partial(replayed, FakeLikeTensor)


class FakeLikeMode(TorchDispatchMode):
    """Inside, factories and module constructors make ``FakeLikeTensor``s: metadata and a claimed device, and no data.

    A 0-dimensional CPU tensor that ``torch.tensor(number)`` makes stays real: it mixes with any device, as ever, and an
    optimizer reads its step from one. Other tensors with data are refused.

    What ``torch.compile`` makes for Inductor is compiled by Inductor's decompositions and partitioner, and not by it:
    its code would have to run.

    Args:
        device: what factories claim that name none; None: torch's own default. Need not exist on this machine.
        convert: turn real tensors that come in into FakeLikeTensors, instead of refusing them.

    Raises:
        RealTensorError: a tensor with data comes in.

    >>> with FakeLikeMode("cuda"):
    ...     layer = torch.nn.Linear(4096, 4096, dtype=torch.bfloat16)
    >>> layer.weight.device
    device(type='cuda', index=0)
    """

    supports_higher_order_operators = True

    def __init__(self, device: Any = None, *, convert: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode_key = FAKE_SLOT
        self.device = None if device is None else torch.device(device)
        self.convert = convert
        self._functions = Functions(self.device, convert)
        self._arrivals = Arrivals(convert)
        self._before: tuple[Any, bool] | None = None
        self._scopes = ExitStack()

    def __enter__(self) -> FakeLikeMode:
        if self._before is not None:
            raise RuntimeError("this FakeLikeMode is on already. Make a second FakeLikeMode.")
        self._before = take_from_slot(FAKE_SLOT), only_lift_cpu_tensors(True)
        super().__enter__()  # type: ignore[no-untyped-call]
        self._scopes.enter_context(self._functions)
        self._scopes.enter_context(casting.scope())
        self._scopes.enter_context(as_if_devices_were_there(_drawn, casting.forget, scaled, without_inductor))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scopes.close()
        self._functions.end()
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        outer, lifting = self._before or (None, False)
        self._before = None
        only_lift_cpu_tensors(lifting)
        if outer is not None:
            put_in_slot(outer)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """As torch's own FakeTensorMode: a part of the machinery, which does not keep torch from compiling."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if len(types) == 1 and types[0] is FakeLikeTensor:
            try:
                replay = known(FakeLikeTensor, func, args, kwargs, alone=True)
            except (UntellableError, UnknownError, StrangerError):
                replay = None
            if replay is not None:
                first = args[0] if args else None
                if type(first) is FakeLikeTensor:
                    self._functions.last = first._l_metadata
                return replay(args, kwargs or {})
        elif not types and not kwargs and (func in PROFILER_MARKS or are_numbers(args)):
            return self._arrivals.leave(func(*args))
        for kind in types:
            if kind is not FakeLikeTensor and not issubclass(kind, TRACERS):
                return NotImplemented
        return self._admitted(func, args, kwargs or {})

    def _admitted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that may have other tensors among its arguments, or none."""
        if not isinstance(func, OpOverload):
            return run_from_state(func, args, kwargs, self.device) if runs_from_state(func) else NotImplemented
        given = [*tensors_in(args)] if not kwargs else [*tensors_in((args, kwargs))]
        if not given:
            return self._made(func, args, kwargs)
        args, kwargs, fakes = self._arrivals.admit(func, args, kwargs, given)
        if fakes:
            return _answer(func, _OURS, args, kwargs)
        if all(tensor.is_meta for tensor in given):  # from C++, or from a compiled graph
            return func(*args, **kwargs)
        if _goes_away(args, kwargs):
            return _answer(func, _OURS, args, kwargs)
        return self._arrivals.leave(func(*args, **kwargs))  # numbers alone

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace == "profiler" or not any(r.tensor for r in facts_of(func).results):
            return func(*args, **kwargs)
        if kwargs.get("device") == META:  # asked for by C++, "like" one of ours
            claim = self._functions.claim()
            if claim is None:
                return func(*args, **kwargs)
            kwargs = {**kwargs, "device": claim}
        return FakeLikeTensor._table[func].run(args, kwargs)  # no operand: a TypeError may be one


def _drawn(tensor: torch.Tensor, mean: float, std: float, *_: Any, generator: Any = None) -> torch.Tensor:
    """In place of a loop until all values lie between two: there are none. What it keeps meanwhile is not planned."""
    with torch.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _goes_away(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the call makes something that is not on the CPU."""
    return any(isinstance(value, torch.device) and value.type != "cpu" for value in (*args, *kwargs.values()))


never_compile(FakeLikeMode.__torch_dispatch__)
