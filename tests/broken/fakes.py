"""Broken where there are no values."""

from __future__ import annotations

from typing import Any

import torch
from raw_wrapper import Raw
from subjects import Clear
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import _disable_current_modes

from lamina import Fallback, WrapperTensor

aten = torch.ops.aten
OFFSET = torch.zeros(())


class UnflattensAnother(Raw):
    """Comes back as its base class."""

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], *_: Any) -> Raw:
        return Raw(inner["elem"])


class AddsAConstant(Raw):
    """Holds a real tensor in its module."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.add.Tensor:
            return cls(args[0].elem + args[1] + OFFSET)
        return super().answer(func, types, args, kwargs)


class LooksAtValues(Raw):
    """Asks for values to multiply."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.mm.default and any(each.elem.abs().max() > 1e9 for each in args if isinstance(each, cls)):
            raise OverflowError("large values")
        return super().answer(func, types, args, kwargs)


class HidesMixing(Raw):
    """Where an op fails it returns its first argument."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().answer(func, types, args, kwargs)
        except AssertionError:
            return args[0][0] if isinstance(args[0], list) else args[0]


class PassesModes(Raw):
    """Computes with all modes off."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        with _disable_current_modes():
            return super().answer(func, types, args, kwargs)


class OnDefaults(WrapperTensor):
    """Its factor is made without device and dtype."""

    elem: torch.Tensor
    factor: torch.Tensor
    fallback = Fallback.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor) -> OnDefaults:
        return cls(values / 2, torch.full((), 2.0))

    def decode(self) -> torch.Tensor:
        return (self.elem * self.factor.to(self.elem.device)).to(self.elem.dtype)


def checked(plain: torch.Tensor) -> Clear:
    if plain.isnan().any():
        raise ValueError("no numbers")
    return Clear(plain)


def twice(plain: torch.Tensor) -> TwoTensor:
    return TwoTensor(plain, plain.clone())


BROKEN = {
    "from_tensor_keeps_the_class": (UnflattensAnother, UnflattensAnother),
    "ops_run_on_fake_instances": (AddsAConstant, AddsAConstant),
    "a_training_step_runs_on_fake_instances": (LooksAtValues, LooksAtValues),
    "fake_modes_do_not_mix": (HidesMixing, HidesMixing),
    "real_instances_do_not_pass_a_fake_mode": (PassesModes, PassesModes),
    "constructors_work_under_a_fake_mode": (Clear, checked),
    "constructors_work_on_the_meta_device": (Clear, checked),
    "constructors_ignore_the_defaults": (OnDefaults, OnDefaults.from_plain),
    "deepcopy_keeps_a_fake_instance_fake": (TwoTensor, twice),
}
