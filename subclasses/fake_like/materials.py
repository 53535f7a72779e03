"""From a tensor without data to a real one, and why there is no other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..core.private import set_conj, set_neg
from .refusals import without_values

Init = Callable[[torch.Tensor], Any]


class Unreadable(torch.Tensor):
    """The part of ``FakeLikeTensor`` that stands where values would be asked."""

    metadata: Any

    def materialize(self, device: Any = None, init: Init | None = None) -> torch.Tensor:
        """A real tensor of the same size, stride, storage offset, dtype, ``requires_grad`` and Parameter-ness.

        Args:
            device: where; by default the claimed device, which has to exist then.
            init: fills it in place, such as ``torch.nn.init.zeros_`` or ``lambda t: t.normal_(0, 0.02)``. By default
                its memory stays as it is found, as that of ``torch.empty``.

        >>> from lamina import FakeLikeTensor
        >>> fake = FakeLikeTensor.from_tensor(torch.ones(2, 3), "cuda")
        >>> fake.materialize("cpu", torch.nn.init.zeros_)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
        """
        where, m = self.device if device is None else torch.device(device), self.metadata
        extent = sum((n - 1) * stride for n, stride in zip(m.size, m.stride, strict=True)) + 1 if 0 not in m.size else 0
        with torch.no_grad():
            memory = torch.empty(m.offset + extent, dtype=m.dtype, device=where)
            real = memory.as_strided(m.size, m.stride, m.offset).detach()
            set_conj(real, m.conj)
            set_neg(real, m.neg)
            if init is not None:
                init(real)
        return (
            nn.Parameter(real, self.requires_grad)
            if isinstance(self, nn.Parameter)
            else real.requires_grad_(self.requires_grad)
        )

    def to_plain(self) -> torch.Tensor:
        raise without_values("to_plain", [self])

    def tolist(self) -> Any:
        raise without_values("tolist", [self])

    def numpy(self, *, force: bool = False) -> Any:
        raise without_values("numpy", [self])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise without_values("numpy", [self])

    def apply_(self, function: Callable[[Any], Any]) -> Any:
        raise without_values("apply_", [self])
