"""Broken in merges, changes of shape, fills and modes of autograd."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear

from broken.aliases import ByHand
from lamina import ScaledInt8Tensor

aten = torch.ops.aten


class RefusesUpdates(Clear):
    """It refuses additions, and does not say what else there is."""


@RefusesUpdates.implements(aten.add_.Tensor)
def no_add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    raise NotImplementedError("quantized weights are frozen")


class ForgetsRounding(ScaledInt8Tensor):
    """It is rebuilt with the recipe of a new one."""

    def requantize(self, values: torch.Tensor, **_: Any) -> Any:
        return type(self).quantize(values, symmetric=False)


class KeepsShape(ByHand):
    """``unsqueeze_`` changes the inner tensor alone."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return args[0] if func in (aten.t_.default, aten.unsqueeze_.default) else out


class FillsCopies(Clear):
    """``uniform_`` fills a copy."""


@FillsCopies.implements(aten.uniform_.default)
def uniform_lost(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    op(self.elem.clone(), *args, **kwargs)
    return self


class KeepsRows(Clear):
    """``neg_`` leaves single rows as they are."""


@KeepsRows.implements(aten.neg_.default)
def neg_rows(op: Any, self: Any) -> Any:
    if self.dim() == 2:
        op(self.elem)
    return self


BROKEN = {
    "merges_go_in": (RefusesUpdates, RefusesUpdates),
    "an_instance_is_rebuilt_from_new_values": (ForgetsRounding, ForgetsRounding.from_plain),
    "changes_of_shape_are_reported": (KeepsShape, KeepsShape),
    "random_fills_go_in": (FillsCopies, FillsCopies),
    "writes_work_in_every_grad_mode": (ByHand, ByHand),
    "writes_take_part_in_autograd": (KeepsRows, KeepsRows),
}
