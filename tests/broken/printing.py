"""Broken in how they print and compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from raw_wrapper import Raw
from subjects import Clear
from torch.testing._internal.two_tensor import TwoTensor

from lamina import LoggingTensor

aten = torch.ops.aten


class PrintsAll(LoggingTensor):
    """Its repr holds all values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.elem.tolist()})"


class PrintsFieldsOnly(Clear):
    """Its repr tells nothing of autograd, nor of a tangent."""

    def __repr__(self) -> str:
        return f"PrintsFieldsOnly({self.elem!r})"


class PrintsByScope(Clear):
    """Its repr is another one under ``no_grad``."""

    def __repr__(self) -> str:
        return f"{super().__repr__()}, grad={torch.is_grad_enabled()}"


class FormatsNothing(Clear):
    """Takes no format."""

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec)


class ListsGarbage(Clear):
    """``tolist`` reads memory that is not its own."""

    def tolist(self) -> Any:
        return (self.elem * 0).tolist()


class RoundsItems(Clear):
    """``item`` loses digits."""

    def item(self) -> Any:
        return round(self.elem.item())


class SwallowsEquality(Clear):
    """Its rule for ``==`` answers what Python's operator makes of a TypeError."""

    def __eq__(self, other: Any) -> Any:
        return False

    __hash__ = Clear.__hash__


class AlwaysEqual(Clear):
    """Equal to all."""


@AlwaysEqual.implements(aten.equal.default)
def equal(op: Any, self: torch.Tensor, other: torch.Tensor) -> bool:
    return True


class CountsNothing(Clear):
    """Can't be subtracted, which the text of ``assert_close`` does."""


@CountsNothing.implements(aten.sub.Tensor)
def sub(op: Any, self: torch.Tensor, other: torch.Tensor, *, alpha: Any = 1) -> torch.Tensor:
    raise RuntimeError("no differences")


class EqualsTensorsOnly(Clear):
    """``==`` expects a tensor."""

    def __eq__(self, other: Any) -> Any:
        return torch.eq(self, other)

    __hash__ = Clear.__hash__


class HashesShape(Clear):
    """All of one shape have one hash."""

    def __hash__(self) -> int:
        return hash(self.shape)


class IteratesColumns(Clear):
    """Iteration gives columns."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(1))


class HasNoLength(Clear):
    """Its length depends on its values."""

    def __len__(self) -> int:
        return int(self.count_nonzero().item())


def has_stranger(types: Any) -> bool:
    return any(each.__name__ == "ForeignTensor" for each in types)


class RaisesAtStrangers(Raw):
    """Says nothing of the call where another class takes part."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if has_stranger(types):
            raise RuntimeError("not supported")
        return super().answer(func, types, args, kwargs)


class AddsTensorsOnly(Clear):
    """``+`` does not return NotImplemented."""

    def __add__(self, other: Any) -> Any:
        return torch.add(self, other)


class RaisesTypeErrors(Raw):
    """A slip in the handler of ``add``."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.add.Tensor:
            raise TypeError("handler() takes 2 arguments")
        return super().answer(func, types, args, kwargs)


class HidesErrors(Raw):
    """Where an op fails it returns its first argument."""

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().answer(func, types, args, kwargs)
        except RuntimeError:
            return args[0]


def on_meta(plain: torch.Tensor) -> HasNoLength:
    return HasNoLength(plain.to("meta"))


def twice(plain: torch.Tensor) -> TwoTensor:
    return TwoTensor(plain, plain.clone())


BROKEN = {
    "repr_is_short": (PrintsAll, PrintsAll),
    "repr_tells_of_autograd": (PrintsFieldsOnly, PrintsFieldsOnly),
    "repr_tells_of_the_tangent": (PrintsFieldsOnly, PrintsFieldsOnly),
    "repr_works_in_every_scope": (PrintsByScope, PrintsByScope),
    "format_strings_work": (FormatsNothing, FormatsNothing),
    "numpy_and_tolist_give_the_values": (ListsGarbage, ListsGarbage),
    "item_gives_the_value": (RoundsItems, RoundsItems),
    "item_asks_every_inner_tensor": (TwoTensor, twice),
    "equality_is_computed": (SwallowsEquality, SwallowsEquality),
    "equal_and_allclose_take_all_mixes": (AlwaysEqual, AlwaysEqual),
    "equal_asks_every_inner_tensor": (TwoTensor, twice),
    "assert_close_compares_values": (CountsNothing, CountsNothing),
    "equality_with_no_tensor_is_as_torch_has_it": (EqualsTensorsOnly, EqualsTensorsOnly),
    "hash_is_identity": (HashesShape, HashesShape),
    "iteration_gives_the_rows": (IteratesColumns, IteratesColumns),
    "length_is_known_without_values": (HasNoLength, on_meta),
    "an_unrelated_class_gets_a_clear_error": (RaisesAtStrangers, RaisesAtStrangers),
    "reflected_operators_are_asked": (AddsTensorsOnly, AddsTensorsOnly),
    "operators_with_numbers_work_or_say_why": (RaisesTypeErrors, RaisesTypeErrors),
    "shapes_that_do_not_fit_are_told": (HidesErrors, HidesErrors),
}
