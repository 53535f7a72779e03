"""The half of FakeLikeMode that sees public functions, before autograd and before C++ decides by device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...subclasses.core.private import factory_functions

_FACTORIES = factory_functions()


class Functions(TorchFunctionMode):
    """``device``: what factories get that name none. ``claim``: the device that the running call is about."""

    def __init__(self, device: torch.device | None) -> None:
        super().__init__()
        self.device = device
        self.claim: torch.device | None = device

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self.device is not None and func in _FACTORIES and kwargs.get("device") is None and not _number(func, args):
            kwargs["device"] = self.device
        return func(*args, **kwargs)


def _number(func: Any, args: Sequence[Any]) -> bool:
    return func is torch.tensor and bool(args) and isinstance(args[0], (bool, int, float, complex))
