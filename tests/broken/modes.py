"""Broken under modes."""

from __future__ import annotations

import atexit
import os
from itertools import count
from typing import Any

import torch
from raw_wrapper import Raw
from subjects import Clear
from torch.utils._python_dispatch import _get_current_dispatch_mode


def without_a_mode(plain: torch.Tensor) -> Clear:
    if _get_current_dispatch_mode() is not None:
        raise RuntimeError("a tensor can't be made here")
    return Clear(plain)


class TransposesAlone(Clear):
    """Its ``t`` minds the modes."""

    def t(self) -> Any:
        return super().t() if _get_current_dispatch_mode() is None else super().t() + 1


class ComputesAbove(Raw):
    """Takes itself off where functions are called: what arrives at the dispatcher is plain."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func in (torch.Tensor.detach, torch.mm):
                return cls.answer(func, types, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in (torch.Tensor.detach, torch.mm):
            return cls(func(*(each.elem if isinstance(each, cls) else each for each in args)))
        return super().answer(func, types, args, kwargs)


class PrintsWhileItWorks(Raw):
    """Its handler prints the arguments, and its repr is made by ops."""

    def __repr__(self) -> str:
        return f"PrintsWhileItWorks({self.detach().elem!r})"

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            return super().answer(func, types, args, kwargs)
        repr(args)
        return super().answer(func, types, args, kwargs)


class MultipliesTwice(Raw):
    """Checks each linear by a second one."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.nn.functional.linear:
                func(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))


class CountsFlattens(Raw):
    """No two of its contexts are equal."""

    numbers = count()

    def __tensor_flatten__(self) -> Any:
        return ["elem"], next(self.numbers)


def with_an_exit_handler(plain: torch.Tensor) -> Clear:
    """A fork runs no exit handlers; the check's other process does."""
    atexit.register(os._exit, 7)
    return Clear(plain)


BROKEN = {
    "constructors_work_under_modes": (Clear, without_a_mode),
    "ops_work_under_modes": (TransposesAlone, TransposesAlone),
    "a_dispatch_mode_sees_each_op_once": (ComputesAbove, ComputesAbove),
    "a_handler_may_use_the_instances": (PrintsWhileItWorks, PrintsWhileItWorks),
    "flops_are_counted_once": (MultipliesTwice, MultipliesTwice),
    "compiled_code_works_under_modes": (CountsFlattens, CountsFlattens),
    "a_process_ends_well_with_a_mode_left_on": (Clear, with_an_exit_handler),
}
