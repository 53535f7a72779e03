"""Adafactor without values. It reads norms, of a parameter and of its update, and all that it makes of one is a number
by which it scales the update: any number gives the same metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...subclasses.core.fields import has_values, leaf_tensors


class Norms(TorchFunctionMode):
    """On around Adafactor's computation alone. It sees what that calls itself: inside such a call (of another mode, or
    of a class of tensors) it is off, and a read there is an error, as everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._norm: Any = None

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.item and args[0] is self._norm:
            self._norm = None
            if not all(map(has_values, leaf_tensors(args[0]))):
                return 1.0
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.norm:
            self._norm = result
        return result


def scaled(update: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``update(*args, **kwargs)``, Adafactor's computation, without the values of the norms."""
    with Norms():
        return update(*args, **kwargs)
