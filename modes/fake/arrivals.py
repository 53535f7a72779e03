"""Tensors with data that come into FakeLikeMode: what mixes, what is refused, what is converted."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import map_nested
from ...subclasses.core.schema import facts_of, value_of
from ...subclasses.fake_like import FakeLikeTensor
from .errors import RealTensorError

META = torch.device("meta")
_NUMBERS = (int, float, bool, complex, type(None))
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default, torch.ops.aten.lift_fresh_copy.default)


class Arrivals:
    """``convert``: whether real tensors become FakeLikeTensors."""

    def __init__(self, convert: bool) -> None:
        self.convert = convert
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def admit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """The arguments of a call as the mode takes them, and whether one of them is a FakeLikeTensor. ``given``: the
        tensors among them.

        Raises:
            RealTensorError: a real tensor is among them, and not to be converted, or can't be.
        """
        fakes = False
        strangers = []
        for tensor in given:
            if isinstance(tensor, FakeLikeTensor):
                fakes = True
            elif not tensor.is_meta and (tensor.requires_grad or not is_number(tensor)):
                strangers.append(tensor)
        if strangers:
            self._check(func, strangers, args, kwargs)
            fresh = func in _LIFTS
            args = map_nested(lambda leaf: self._converted(leaf, fresh), args)
            kwargs = map_nested(lambda leaf: self._converted(leaf, fresh), kwargs)
        return args, kwargs, fakes or bool(strangers)

    def leave(self, result: Any) -> Any:
        """What was computed of numbers: a number, or a FakeLikeTensor."""
        if are_numbers((result,)) or type(result) in _NUMBERS:
            return result
        return map_nested(lambda leaf: self._converted(leaf, fresh=True), result)

    def _check(
        self, func: Any, strangers: Sequence[torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        if func in _LIFTS:
            return
        for tensor in strangers:
            if not self.convert or tensor.requires_grad:
                raise RealTensorError(func, tensor)
        for argument in facts_of(func).written:
            for target in tensors_in(value_of(argument, tuple(args), dict(kwargs))):
                if any(target is stranger for stranger in strangers):
                    raise RealTensorError(func, target)

    def _converted(self, value: Any, fresh: bool) -> Any:
        """A tensor that comes in again is the same FakeLikeTensor again."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeLikeTensor):
            return value
        if value.device == META or (is_number(value) and not value.requires_grad):
            return value
        if fresh:
            return FakeLikeTensor.from_tensor(value.detach())
        source, fake = self._known.get(id(value), (None, None))
        if source is None or source() is not value or fake is None:
            fake = FakeLikeTensor.from_tensor(value.detach())
            self._known[id(value)] = (weakref.ref(value, partial(self._forget, id(value))), fake)
        return fake

    def _forget(self, key: int, _: Any) -> None:
        self._known.pop(key, None)


def is_number(tensor: torch.Tensor) -> bool:
    """Whether a real tensor mixes with those of any device: it is 0-dimensional, and on the CPU."""
    return tensor.dim() == 0 and tensor.is_cpu


def are_numbers(args: Sequence[Any]) -> bool:
    """Whether the arguments of a call are such tensors, without gradients, and Python's numbers; the first is a tensor.
    What an optimizer does with its count of steps is such a call."""
    if not args or type(args[0]) is not torch.Tensor:
        return False
    for value in args:
        if type(value) is torch.Tensor:
            if value.requires_grad or not is_number(value):
                return False
        elif type(value) not in _NUMBERS:
            return False
    return True
