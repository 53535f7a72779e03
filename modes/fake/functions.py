"""The half of FakeLikeMode that sees public functions, before autograd and before C++ decides by device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, MethodWrapperType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import OpOverload, any_autocast, factory_functions, include_key
from ...subclasses.fake_like import FakeLikeTensor
from ...subclasses.fake_like.autocast import KEY
from ...subclasses.fake_like.claims import device_of
from ...subclasses.fake_like.errors import UndecidedError
from .arrivals import META, is_number
from .autocast import casting, is_on
from .errors import RealTensorError

_FACTORIES = factory_functions()
# Dynamo has no hash of the others.
_IN_GRAPHS = frozenset(made for made in _FACTORIES if "sparse" not in made.__name__)
_OF_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
_NUMBERS = (bool, int, float, complex)
_dynamo_traces = torch.compiler.is_dynamo_compiling


class Functions(TorchFunctionMode):
    """``device``: what factories get that name none. ``convert``: whether real tensors become FakeLikeTensors."""

    def __init__(self, device: torch.device | None, convert: bool) -> None:
        super().__init__()
        self.device, self.convert = device, convert
        self.last: Any = None  # the metadata of a tensor that was computed with
        self._casts = False  # whether autocast was seen

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if _dynamo_traces():  # what follows would be traced, and break the graph there
            kwargs = kwargs or {}
            if self.device is not None and func in _IN_GRAPHS and kwargs.get("device") is None:
                kwargs = {**kwargs, "device": self.device}
            if func is torch.Tensor.unflatten:  # asks its own class, which Dynamo can't follow
                func = torch.unflatten
            return func(*args, **kwargs)
        if type(func) is MethodWrapperType:  # an attribute is read or set: half of the calls of an optimizer
            return func(*args)
        if not self._casts and any_autocast():
            self._cast()
        special = _SPECIAL.get(func)
        if special is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        return special(self, func, args, dict(kwargs or {}))

    def claim(self) -> torch.device | None:
        """The device that a call is about, in which C++ makes a tensor "like" one of ours: what it names, that of its
        first argument that is ours, or of what was computed before, in the backward say. None: a compiled graph asks,
        which computes on carriers."""
        func, args, kwargs = _running_call()
        if isinstance(func, OpOverload):
            return None
        if kwargs.get("device") is not None:
            return device_of(kwargs["device"])
        found = next((t for t in tensors_in((tuple(args), dict(kwargs))) if isinstance(t, FakeLikeTensor)), None)
        if found is not None:
            return found.device
        return (self.device or META) if self.last is None else self.last.device

    def end(self) -> None:
        """Lets go of what autocast took."""
        if self._casts:
            casting.end()
        self._casts = False

    def _cast(self) -> None:
        """autocast is on for the first time: from here on calls pass by the kernels that follow it."""
        casting.begin()
        self._casts = True
        include_key(KEY)


def _running_call() -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """The innermost function that this thread is in, and its arguments. Looked up in its frames when somebody asks:
    keeping them in each call would take time, and keep tensors."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _HANDLER:
            return frame.f_locals["func"], frame.f_locals["args"], frame.f_locals["kwargs"] or {}
        frame = frame.f_back
    return None, (), {}


def _make(mode: Functions, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A factory: on the mode's device, unless it names one."""
    out = kwargs.get("out")
    if out is not None:
        return func(*args, **_agreeing(out, kwargs))
    if mode.device is not None and kwargs.get("device") is None and not _is_number(func, args):
        kwargs["device"] = mode.device
    made = func(*args, **kwargs)
    if func in _OF_DATA and type(made) is torch.Tensor and made.is_meta:  # asked for there: no mode saw it
        return FakeLikeTensor.from_tensor(made)
    if kwargs.get("pin_memory"):
        made._l_pinned = True
    return made


def _draw(_: Functions, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``normal`` of numbers makes a tensor, but never on a default device."""
    out = kwargs.get("out")
    return func(*args, **(kwargs if out is None else _agreeing(out, kwargs)))


def _agreeing(out: torch.Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without the device, which C++ would compare with that of the carrier."""
    device = kwargs.pop("device", None)
    if device is not None and device_of(device) != out.device:
        raise RuntimeError(f"device {device} does not match device of out parameter ({out.device})")
    return kwargs


def _is_number(func: Any, args: Sequence[Any]) -> bool:
    return func is torch.tensor and bool(args) and isinstance(args[0], _NUMBERS)


def _take(mode: Functions, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``as_tensor`` and ``asarray``: of one of ours, itself where nothing changes."""
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if not isinstance(data, FakeLikeTensor):
        return _make(mode, func, args, kwargs)
    dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
    device = kwargs.get("device", args[2] if len(args) > 2 else None)
    copied = data.to(mode.device if device is None else device, dtype, copy=bool(kwargs.get("copy")))
    return copied.detach().requires_grad_(kwargs["requires_grad"]) if "requires_grad" in kwargs else copied


def _attend(_: Functions, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The encoder's fast path is taken where no tensor has a function handler; this mode is one for all of them."""
    query, key, value = args[:3]
    embedded, heads = args[3:5]
    fast = (
        torch.backends.mha.get_fastpath_enabled()
        and not kwargs.get("training", True)
        and query is key
        and key is value
        and query.dim() == 3
        and heads % 2 == 0
        and query.stride(0) < query.stride(1)  # batch_first: transposed on the way here
        and not is_on()
        and not kwargs.get("use_separate_proj_weight")
        and query.size(-1) == embedded
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in((tuple(args), kwargs))))
        and kwargs.get("in_proj_bias", args[6] if len(args) > 6 else None) is not None
    )
    if fast:
        raise UndecidedError(
            "nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation, without gradients, run in one kernel "
            "(the fast path), which can't be taken inside FakeLikeMode. Plan the other path, on the device too: "
            "torch.backends.mha.set_fastpath_enabled(False)."
        )
    return func(*args, **kwargs)


def _move(mode: Functions, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Of a real tensor to a device: C++ would look for it. One of ours has methods of its own."""
    tensor, *rest = args
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.is_meta or not _leaves_the_cpu(func, rest, kwargs):
        return func(*args, **kwargs)
    if tensor.requires_grad or not (is_number(tensor) or mode.convert):
        raise RealTensorError(f"torch.Tensor.{func.__name__}", tensor)
    return getattr(FakeLikeTensor.from_tensor(tensor), func.__name__)(*rest, **kwargs)


def _leaves_the_cpu(func: Any, rest: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if func is not torch.Tensor.to:
        return func is not torch.Tensor.cpu
    target = kwargs.get("device", rest[0] if rest else kwargs.get("tensor"))
    if isinstance(target, torch.Tensor):
        return target.device.type != "cpu"
    return isinstance(target, (int, str, torch.device)) and device_of(target).type != "cpu"


_HANDLER = Functions.__torch_function__.__code__
_Special = Callable[[Functions, Any, Sequence[Any], dict[str, Any]], Any]
_SPECIAL: dict[Any, _Special] = dict.fromkeys(_FACTORIES, _make)
_SPECIAL |= dict.fromkeys([getattr(torch.Tensor, name) for name in ("to", "cuda", "xpu", "mtia", "ipu")], _move)
_SPECIAL |= {torch.as_tensor: _take, torch.asarray: _take, torch.normal: _draw}
_SPECIAL[F.multi_head_attention_forward] = _attend
