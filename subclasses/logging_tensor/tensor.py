"""LoggingTensor: transparent, and each operator that touches it is recorded where a log wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

import torch

from ..core.errors import InnerTensorError
from ..core.policy import Fallback
from ..core.private import TRACERS, OpOverload, is_tracing
from ..core.wrapper import WrapperTensor
from .log import Log
from .scope import LIVE, LogHandle, active_log


class LoggingTensor(WrapperTensor):
    """A tensor that computes what ``elem`` computes, bit for bit, gradients included, and records each operator.

    ``LoggingTensor(elem, log=None)``. Without a log of its own, the records go to the innermost log in scope, and
    nowhere where there is none; that costs one truth test. What several logs of the operands want is recorded in each.
    Nested in itself or in others, it shows outer and inner operators, the inner ones one level deeper.

    While PyTorch traces, nothing is recorded: a tracer runs an operator several times, or never.
    ``lamina.modes.logged_backend`` records compiled graphs.

    >>> import torch
    >>> from lamina.subclasses.logging_tensor import Log
    >>> weight = LoggingTensor(torch.ones(3, 2))
    >>> with Log() as log:
    ...     result = torch.ones(4, 3) @ weight
    >>> log.records[0].op, log.records[0].cls, log.records[0].outputs[0].shape
    ('aten::mm', 'LoggingTensor', (4, 2))
    """

    elem: torch.Tensor
    log_handle: LogHandle | None = None  # not ``log``: that is a method of every tensor

    fallback = Fallback.UNWRAP
    precedence = 100

    def __new__(
        cls,
        elem: torch.Tensor,
        log: Log | LogHandle | None = None,
        *fields: Any,
        log_handle: LogHandle | None = None,
        **named: Any,
    ) -> LoggingTensor:
        # ``fields`` and ``named`` are those that a subclass declares
        log = log_handle if log is None else log
        if not isinstance(log, (Log, LogHandle, NoneType)):
            raise InnerTensorError(f"LoggingTensor(elem, log) takes a Log, its handle, or None; got {log!r}")
        return super().__new__(cls, elem, log.handle if isinstance(log, Log) else log, *fields, **named)

    @classmethod
    def around(cls, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        def logged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return _observed(cls, op, run, args, kwargs) if LIVE else run(args, kwargs)

        return logged


def _observed(
    cls: type[LoggingTensor],
    op: OpOverload,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    operands = list(_instances(cls, (*args, *kwargs.values())))
    if is_tracing() or any(isinstance(_leaf(operand), TRACERS) for operand in operands):
        return run(args, kwargs)
    call: Callable[..., Any] = lambda *a, **k: run(a, k)  # noqa: E731 - an argument, named for its type
    for log in {id(log): log for operand in operands if (log := active_log(operand.log_handle)) is not None}.values():
        call = _recording(log, op, call, cls.__name__)
    return call(*args, **kwargs)


def _recording(log: Log, op: OpOverload, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: log.observe(op, call, args, kwargs, layer="subclass", cls=name)


def _instances(cls: type[LoggingTensor], values: Any) -> Iterator[LoggingTensor]:
    for value in values:
        if type(value) is cls:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _instances(cls, value)


def _leaf(tensor: Any) -> Any:
    while isinstance(tensor, LoggingTensor):
        tensor = tensor.elem
    return tensor
