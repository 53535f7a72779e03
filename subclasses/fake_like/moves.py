"""Moves between claimed devices.

C++ would start the device, and its backward would move the gradient to the carrier's. Where only the dtype or the
layout changes, it is C++ that does it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.private import arguments_of_to
from .claims import NAMES, Claims, device_of

aten = torch.ops.aten
_TYPES = {
    f"torch.{kind}{name}Tensor": (dtype, device)
    for kind, device in (("", "cpu"), ("cuda.", "cuda"))
    for dtype, name in NAMES.items()
}


class _Move(torch.autograd.Function):
    """To another claimed device, and the gradient back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device, dtype: Any, memory_format: Any) -> torch.Tensor:
        ctx.origin = tensor.device, tensor.dtype
        return _copied(tensor, device, dtype, memory_format)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        device, dtype = ctx.origin
        return gradients[0].to(device, dtype), None, None, None


def _copied(tensor: torch.Tensor, device: torch.device, dtype: Any, memory_format: Any) -> torch.Tensor:
    copy: torch.Tensor = aten._to_copy.default(tensor, dtype=dtype, device=device, memory_format=memory_format)
    return copy


def _is_device(value: Any) -> bool:
    return value is None or isinstance(value, (str, torch.device)) or type(value) is int


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, bool, Any]:
    """Device, dtype, non_blocking, copy and memory format of a call of ``to``: ``float`` is a dtype, and a number a
    tensor of one.

    Raises:
        TypeError: torch takes no such arguments.
    """
    rest, named = list(args), dict(kwargs)
    first = rest[0] if rest else named.get("tensor")
    place = 3 if _is_device(first) else 2
    copy = rest.pop(place) if len(rest) > place else named.pop("copy", False)
    if type(copy) is not bool or len(rest) > place or "copy" in named:
        raise TypeError(f"to() takes a device, a dtype or a tensor, non_blocking, copy and memory_format; not {args}")
    where = None
    if isinstance(first, torch.Tensor):
        named.pop("tensor", None)
        rest, where = [first.dtype, *rest[1:]], first.device
    rest = [device_of(value) if type(value) is int else value for value in rest]
    if type(named.get("device")) is int:
        named["device"] = device_of(named["device"])
    device, dtype, blocking, memory_format = arguments_of_to(*rest, **named)
    return where or device, dtype, blocking, copy, memory_format or torch.preserve_format


class Moves(Claims):
    """``to`` and its kin."""

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        """As ``torch.Tensor.to``; the device is what the result claims to be on, and need not exist."""
        device, dtype, blocking, copy, memory_format = _target(args, kwargs)
        if device is None or device_of(device) == self.device:
            return torch.Tensor.to(self, dtype or self.dtype, blocking, copy, memory_format=memory_format)
        where = device_of(device)
        if torch.is_grad_enabled() and self.requires_grad:
            return _Move.apply(self, where, dtype, memory_format)  # type: ignore[no-untyped-call]
        return _copied(self, where, dtype, memory_format)

    def cpu(self: Any, memory_format: Any = torch.preserve_format) -> Any:
        """As ``torch.Tensor.cpu``."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """As ``torch.Tensor.cuda``, without CUDA."""
        return self._l_away("cuda", device, memory_format)

    def xpu(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """As ``torch.Tensor.xpu``, without one."""
        return self._l_away("xpu", device, memory_format)

    def mtia(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """As ``torch.Tensor.mtia``, without one."""
        return self._l_away("mtia", device, memory_format)

    def ipu(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """As ``torch.Tensor.ipu``, without one."""
        return self._l_away("ipu", device, memory_format)

    def _l_away(self: Any, kind: str, device: Any, memory_format: Any) -> Any:
        where = torch.device(kind, device) if isinstance(device, int) else device_of(device or kind)
        if where.type != kind:
            raise RuntimeError(f"Invalid device, must be {kind} device")
        return self.to(where, memory_format=memory_format or torch.preserve_format)

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """As ``torch.Tensor.type``: the name of its type, or a conversion to another."""
        if dtype is None:
            return self.type_name()
        if isinstance(dtype, torch.dtype):
            return self.to(dtype)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        if name not in _TYPES:
            raise ValueError(f"invalid type: {name!r}")
        kind, device = _TYPES[name]
        return self.to(self.device if self.device.type == device else device, kind)

    def type_as(self: Any, other: torch.Tensor) -> Any:
        """As ``torch.Tensor.type_as``."""
        if not isinstance(other, torch.Tensor):
            raise TypeError(f"type_as(): argument 'other' must be Tensor, not {type(other).__name__}")
        return self.to(other.device, other.dtype)

    def pin_memory(self: Any, device: Any = None) -> Any:
        """A copy that claims to be in pinned memory.

        Raises:
            RuntimeError: it doesn't claim to be on the CPU.
        """
        if not self.is_cpu:
            raise RuntimeError(f"cannot pin '{self.type_name()}' only dense CPU tensors can be pinned")
        if self.is_pinned():
            return self
        copy = self.clone()
        copy._l_pinned = True
        return copy

    def is_pinned(self: Any, device: Any = None) -> bool:
        """Whether it claims to be in pinned memory. A view of such a tensor doesn't know."""
        return "_l_pinned" in vars(self)

    def share_memory_(self: Any) -> Any:
        """Itself, which claims to be in shared memory."""
        self._l_shared = True
        return self

    def is_shared(self: Any) -> bool:
        """Whether it claims to be in shared memory, as all of CUDA's is."""
        return self.is_cuda or "_l_shared" in vars(self)
