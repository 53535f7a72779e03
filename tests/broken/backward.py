"""Broken in what happens during a backward."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
from typing import Any

import torch
from by_hand import ByHand

from broken.autograd import WritesUnseen

aten = torch.ops.aten


class NoComparisons(ByHand):
    """Anomaly mode compares the gradient with itself."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func in (aten.isnan.default, aten.ne.Tensor):
            raise RuntimeError("no comparisons")
        return func(*args, **kwargs)


class NeverInfinite(ByHand):
    """Leaves out the op that looks for overflow."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func is aten._amp_foreach_non_finite_check_and_unscale_.default:
            return None
        return func(*args, **kwargs)


BROKEN = {
    "gradients_pass_through_in_place_ops": (WritesUnseen, WritesUnseen),
    "autograd_tools_take_instances": (NoComparisons, NoComparisons),
    "gradient_scaling_works": (NeverInfinite, NeverInfinite),
}
