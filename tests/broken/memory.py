"""Broken in what they keep."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import torch
from raw_wrapper import Raw

aten = torch.ops.aten


class KnowsItself(Raw):
    """Refers to itself."""

    def __init__(self, elem: torch.Tensor) -> None:
        super().__init__(elem)
        self.owner = self


class KeepsFailures(Raw):
    """An error that was raised last, with all that its frames held."""

    last: ClassVar[Any] = None

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().answer(func, types, args, kwargs)
        except RuntimeError:
            cls.last = args
            raise


class KeepsProducts(Raw):
    """The last product stays alive."""

    last: ClassVar[Any] = None

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = super().answer(func, types, args, kwargs)
        if func is aten.mm.default:
            cls.last = out
        return out


class KeepsALog(Raw):
    """A list of all that was called."""

    log: ClassVar[list[Any]] = []

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        cls.log.append((str(func), [str(args[0].shape)]))
        return super().answer(func, types, args, kwargs)


class CopiesDetached(Raw):
    """``detach`` is a copy."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.detach.default:
            return cls(args[0].elem.clone())
        return super().answer(func, types, args, kwargs)


class CachesOnItself(Raw):
    """Holds its values a second time."""

    def __init__(self, elem: torch.Tensor) -> None:
        super().__init__(elem)
        self.transposed = elem.t().contiguous()


class CopiesByView(Raw):
    """``clone`` is a view."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.clone.default:
            return cls(args[0].elem.view(args[0].shape))
        return super().answer(func, types, args, kwargs)


class CompilesProducts(Raw):
    """Has its products compiled."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.mm.default:
            torch.compile(torch.neg, backend="eager")(torch.ones(2))
        return super().answer(func, types, args, kwargs)


class SharesScratch(Raw):
    """Passes its operands through the class."""

    operand: ClassVar[Any] = None

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.mm.default:
            cls.operand = args[1]
            time.sleep(0.002)
            args = (args[0], cls.operand)
        return super().answer(func, types, args, kwargs)


BROKEN = {
    "instances_are_freed_at_once": (KnowsItself, KnowsItself),
    "results_are_freed_at_once": (KeepsFailures, KeepsFailures),
    "graphs_are_freed_at_once": (KeepsProducts, KeepsProducts),
    "nothing_grows_over_many_ops": (KeepsALog, KeepsALog),
    "aliases_share_the_inner_tensors": (CopiesDetached, CopiesDetached),
    "all_memory_is_in_the_leaves": (CachesOnItself, CachesOnItself),
    "a_copy_of_a_slice_holds_the_slice_only": (CopiesByView, CopiesByView),
    "ops_do_not_compile": (CompilesProducts, CompilesProducts),
    "threads_give_the_results_of_one": (SharesScratch, SharesScratch),
}
