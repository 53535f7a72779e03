"""What lamina is compared with: a no-op handler, a wrapper as an expert writes it by hand, empty modes, others' types.

The hand-written wrapper is the floor that lamina is judged against, so it has the fastest plain form on torch 2.13: an
if-chain by identity, one inner call, `_make_wrapper_subclass` with positional arguments (keywords cost 0.3 us), the
inner tensor in a slot (an instance dictionary costs 0.2 us), no function handler, views aliased by the cheapest call.
Private torch functions are called directly here, and nowhere else in the bench: who writes by hand does so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..subclasses.interop.quiet import quiet_import
from .subjects import Absence, Subject, attribute, load_subjects

aten = torch.ops.aten
_ADD, _ADD_, _MM, _T, _VIEW = aten.add.Tensor, aten.add_.Tensor, aten.mm.default, aten.t.default, aten.view.default
_DETACH, _ADDMM, _LINEAR, _CAT = aten.detach.default, aten.addmm.default, aten.linear.default, aten.cat.default
_FOREACH_ADD_, _TO_COPY = aten._foreach_add_.List, aten._to_copy.default
_make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
share_storage: Callable[[Tensor, Tensor], None] = torch._functionalize_unsafe_set


class HandWritten(torch.Tensor):
    """The floor: the least that a correct one-tensor wrapper does for the ops of this bench."""

    __slots__ = ("elem",)
    elem: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[HandWritten], elem: Tensor) -> HandWritten:
        """Wrap one tensor."""
        return hold(elem)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is _ADD:
            left, right = args
            left = left.elem if isinstance(left, HandWritten) else left
            right = right.elem if isinstance(right, HandWritten) else right
            return hold(func(left, right, **kwargs) if kwargs else func(left, right))
        if func is _DETACH or func is _T:
            (base,) = args
            return hold_view(func(base.elem), base)
        if func is _VIEW:
            base, size = args
            return hold_view(func(base.elem, size), base)
        if func is _ADD_:
            target, other = args
            other = other.elem if isinstance(other, HandWritten) else other
            func(target.elem, other, **kwargs) if kwargs else func(target.elem, other)
            return target
        if func is _MM or func is _LINEAR or func is _ADDMM:
            operands = [arg.elem if isinstance(arg, HandWritten) else arg for arg in args]
            return hold(func(*operands, **kwargs) if kwargs else func(*operands))
        if func is _CAT:
            parts = [part.elem if isinstance(part, HandWritten) else part for part in args[0]]
            return hold(func(parts, *args[1:]))
        if func is _FOREACH_ADD_:
            lists = [[item.elem if isinstance(item, HandWritten) else item for item in items] for items in args]
            func(*lists, **kwargs) if kwargs else func(*lists)
            return None
        if func is _TO_COPY:
            return hold(func(args[0].elem, **kwargs))
        raise NotImplementedError(f"the hand-written wrapper has no case for {func}.")


def hold(elem: Tensor) -> HandWritten:
    outer: HandWritten = _make_wrapper_subclass(
        HandWritten, elem.size(), elem.stride(), elem.storage_offset(), None, elem.dtype, elem.layout, elem.device
    )
    outer.elem = elem
    return outer


def hold_view(elem: Tensor, base: Tensor) -> HandWritten:
    outer = hold(elem)
    share_storage(outer, base)
    return outer


class NoOp(torch.Tensor):
    """A handler that only hands back a prepared answer: the price of entering Python and leaving it."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    answer: object = None

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NoOp.answer


@contextmanager
def prepared_answer(answer: object) -> Iterator[None]:
    """While inside, every NoOp handler returns `answer`."""
    before, NoOp.answer = NoOp.answer, answer
    try:
        yield
    finally:
        NoOp.answer = before


def _wrap_no_op(plain: Tensor) -> Tensor:
    return _make_wrapper_subclass(NoOp, plain.size(), plain.stride(), dtype=plain.dtype, device=plain.device)


class EmptyDispatchMode(TorchDispatchMode):
    """A dispatch mode that only calls on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


class EmptyFunctionMode(TorchFunctionMode):
    """A function mode that only calls on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


_TORCH = f"torch {torch.__version__}"
HAND_WRITTEN = "hand-written"
NO_OP, TWO_TENSOR, TORCH_LOGGING, INT8 = "no-op handler", "TwoTensor", "torch LoggingTensor", "torchao Int8Tensor"
FAKE, DEBUG_MODE, FLOP_COUNTER = "torch FakeTensor", "torch DebugMode", "torch FlopCounterMode"
QUANTO = "optimum-quanto WeightQBytesTensor"
DISPATCH_MODE, FUNCTION_MODE = "empty dispatch mode", "empty function mode"


def hand_written() -> Subject:
    """The floor."""
    return Subject(HAND_WRITTEN, "this bench", HandWritten, attribute("elem"))


def _no_op() -> Subject:
    return Subject(NO_OP, "this bench", _wrap_no_op, max_layers=1, computes=False)


def _mode(name: str, scope: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Subject]:
    return lambda: Subject(name, "this bench", scope=scope)


def _two_tensor() -> Subject:
    from torch.testing._internal.two_tensor import TwoTensor

    def wrap(plain: Tensor) -> Tensor:
        twin: Tensor = TwoTensor(plain, plain.clone())
        return twin

    return Subject(TWO_TENSOR, _TORCH, wrap, attribute("a"))


def _torch_logging_tensor() -> Subject:
    from torch.testing._internal.logging_tensor import LoggingTensor

    return Subject(TORCH_LOGGING, _TORCH, LoggingTensor, attribute("elem"))


def _fake_tensor() -> Subject:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    return Subject(FAKE, _TORCH, mode.from_tensor, max_layers=1, has_values=False)


def _debug_mode() -> Subject:
    from torch.utils._debug_mode import DebugMode

    return Subject(DEBUG_MODE, _TORCH, scope=DebugMode, max_layers=1)


def flop_counter_mode() -> Any:
    """One that prints nothing. Imported where it is used: its module logs a line where there is no Triton."""
    return quiet_import("torch.utils.flop_counter").FlopCounterMode(display=False)


def _flop_counter_mode() -> Subject:
    return Subject(FLOP_COUNTER, _TORCH, scope=flop_counter_mode, max_layers=1)


def _quanto() -> Subject:
    quanto = quiet_import("optimum.quanto")
    optimizer = quanto.AbsmaxOptimizer()

    def quantize(plain: Tensor) -> Tensor:
        scale = optimizer(plain, qtype=quanto.qint8, axis=0)
        quantized: Tensor = quanto.quantize_weight(plain, quanto.qint8, 0, scale)
        return quantized

    origin = f"optimum-quanto {version('optimum-quanto')}"
    return Subject(QUANTO, origin, quantize, _dequantized, max_layers=1, weight_only=True, tolerance=1e-3)


def _dequantized(quantized: Tensor) -> Tensor:
    return quantized.dequantize()


def _int8_tensor() -> Subject:
    quantization = quiet_import("torchao.quantization")

    def quantize(plain: Tensor) -> Tensor:
        quantized: Tensor = quantization.Int8Tensor.from_hp(plain, quantization.PerRow())
        return quantized

    origin = f"torchao {version('torchao')}"
    return Subject(INT8, origin, quantize, _dequantized, max_layers=1, weight_only=True, tolerance=1e-3)


_PEERS: dict[str, Callable[[], Subject]] = {
    NO_OP: _no_op,
    HAND_WRITTEN: hand_written,
    DISPATCH_MODE: _mode(DISPATCH_MODE, EmptyDispatchMode),
    FUNCTION_MODE: _mode(FUNCTION_MODE, EmptyFunctionMode),
    TWO_TENSOR: _two_tensor,
    TORCH_LOGGING: _torch_logging_tensor,
    FAKE: _fake_tensor,
    DEBUG_MODE: _debug_mode,
    FLOP_COUNTER: _flop_counter_mode,
    INT8: _int8_tensor,
    QUANTO: _quanto,
}


def load_peers() -> tuple[list[Subject], list[Absence]]:
    """All peers that this installation has, and the reason for each that it lacks."""
    return load_subjects(_PEERS)
