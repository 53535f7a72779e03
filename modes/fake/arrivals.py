"""Tensors with data that come into FakeLikeMode: what mixes, what is refused, what is converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import map_nested
from ...subclasses.fake_like import FakeLikeTensor
from .errors import RealTensorError

CPU = torch.device("cpu")
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default, torch.ops.aten.lift_fresh_copy.default)


class Arrivals:
    """``convert``: whether real tensors become FakeLikeTensors."""

    def __init__(self, convert: bool) -> None:
        self.convert = convert

    def admit(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """The arguments of a call as the mode takes them, and whether one of them is a FakeLikeTensor."""
        fakes = strangers = False
        for tensor in tensors_in((args, kwargs)):
            if isinstance(tensor, FakeLikeTensor):
                fakes = True
            elif not is_number(tensor):
                strangers = True
                if not self.convert and func not in _LIFTS:
                    raise RealTensorError(func, tensor)
        if strangers:
            args = [self._converted(value) for value in args]
            kwargs = {name: self._converted(value) for name, value in kwargs.items()}
        return tuple(args), dict(kwargs), fakes or strangers

    def leave(self, result: Any) -> Any:
        """What was computed of numbers: a number, or a FakeLikeTensor."""
        return map_nested(self._converted, result)

    def _converted(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._converted(each) for each in value]
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeLikeTensor) and not is_number(value):
            return FakeLikeTensor.from_tensor(value.detach())
        return value


def is_number(tensor: torch.Tensor) -> bool:
    """Whether a real tensor mixes with those of any device: it is 0-dimensional, and on the CPU."""
    return tensor.dim() == 0 and tensor.device == CPU
