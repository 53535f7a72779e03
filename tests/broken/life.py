"""Broken in how they are copied and made Parameters."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled
from torch.testing._internal.logging_tensor import LoggingTensor as Slotted  # can't be swapped with a plain tensor


class SharesItsCopy(Clear):
    """A deep copy holds the tensor of the original."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)(self.elem).requires_grad_(self.requires_grad)


class CopiesPlain(Clear):
    """A shallow copy is plain."""

    def __copy__(self) -> torch.Tensor:
        return self.to_plain()


class CopiesTheBase(Clear):
    """The deep copy of a view begins where the base does."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)(self.elem.as_strided(self.elem.shape, self.elem.stride(), 0).clone())


class ForgetsGradient(Clear):
    """A deep copy has no gradient."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = super().__deepcopy__(memo)
        result.grad = None
        return result


class ForgetsMemo(Clear):
    """A deep copy does not know what was copied before."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return super().__deepcopy__({})


class CutsGraph(Clear):
    """The result of an op is deep-copied, cut off."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return super().__deepcopy__(memo) if self.is_leaf else self.detach().__deepcopy__(memo)


class ForgetsAttributes(Clear):
    """A deep copy has none of the user's attributes."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = super().__deepcopy__(memo)
        for name in {"no_decay", "names_of_axes"} & set(vars(result)):
            delattr(result, name)
        return result


class TakesHooksAlong(Clear):
    """A deep copy has the hooks of the original."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = super().__deepcopy__(memo)
        for hook in (self._backward_hooks or {}).values():
            result.register_hook(hook)
        return result


class DoublesAgain(Doubled):
    """Made of an instance it takes that for its inner tensor, and says twice the values."""

    def __new__(cls, elem: torch.Tensor, requires_grad: bool = False) -> Any:
        return super().__new__(cls, elem).requires_grad_(requires_grad)


BROKEN = {
    "deepcopy_keeps_the_instance": (SharesItsCopy, SharesItsCopy),
    "copy_keeps_the_instance": (CopiesPlain, CopiesPlain),
    "copied_views_keep_their_values": (CopiesTheBase, CopiesTheBase),
    "deepcopy_keeps_the_gradient": (ForgetsGradient, ForgetsGradient),
    "deepcopy_keeps_what_is_shared": (ForgetsMemo, ForgetsMemo),
    "deepcopy_of_a_result_is_refused": (CutsGraph, CutsGraph),
    "a_copied_parameter_keeps_its_attributes": (ForgetsAttributes, ForgetsAttributes),
    "hooks_stay_with_the_original": (TakesHooksAlong, TakesHooksAlong),
    "a_parameter_is_rebuilt_from_an_instance": (DoublesAgain, DoublesAgain.from_plain),
    "swapped_tensors_exchange_their_values": (Slotted, Slotted),
}
