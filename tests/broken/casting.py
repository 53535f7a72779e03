"""Broken in how they are cast, alone and in modules."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear
from torch.testing._internal.logging_tensor import LoggingTensor as Unflattened  # no __tensor_flatten__

aten = torch.ops.aten


class KeepsDtype(Clear):
    """A cast is ignored."""


@KeepsDtype.implements(aten._to_copy.default)
def copy_as_it_is(op: Any, self: Any, **how: Any) -> Any:
    return type(self)(self.elem.clone())


class CastsToPlain(Clear):
    """A cast gives a plain tensor."""


@CastsToPlain.implements(aten._to_copy.default)
def copy_to_plain(op: Any, self: Any, **how: Any) -> Any:
    return op(self.elem, **how)


class DropsUpdates(Clear):
    """An in-place sum is computed into a temporary, and lost."""


@DropsUpdates.implements(aten.add_.Tensor)
def add_nothing_(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    return self


class CopiedPlain(Clear):
    """A deep copy is a plain Parameter."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return torch.nn.Parameter(self.detach().to_plain(), requires_grad=self.requires_grad)


class RefusesWithoutReason(Clear):
    """A cast is an error that says nothing."""


@RefusesWithoutReason.implements(aten._to_copy.default)
def refuse(op: Any, self: Any, **how: Any) -> Any:
    raise RuntimeError("this can't be done")


class LosesItsMarks(Unflattened):
    """Torch moves it by ``p.data = moved``, and setting that drops the attributes of a Parameter."""

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> None:
        self.elem = other.elem
        vars(self).pop("no_decay", None)


BROKEN = {
    "a_cast_parameter_keeps_its_marks": (LosesItsMarks, LosesItsMarks),
    "dtype_conversions_are_followed": (KeepsDtype, KeepsDtype),
    "a_module_is_cast": (CastsToPlain, CastsToPlain),
    "a_buffer_is_cast": (CastsToPlain, CastsToPlain),
    "a_module_is_cast_beside_an_optimizer": (DropsUpdates, DropsUpdates),
    "a_module_is_cast_beside_its_average": (CopiedPlain, CopiedPlain),
    "a_compiled_module_is_cast": (KeepsDtype, KeepsDtype),
    "a_cast_that_is_refused_is_explained": (RefusesWithoutReason, RefusesWithoutReason),
    "tied_weights_stay_tied": (CopiedPlain, CopiedPlain),
}
