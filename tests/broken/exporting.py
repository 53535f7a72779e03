"""Broken while ``torch.export`` traces them, or in what they leave in its program."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
from typing import Any

import torch
from by_hand import ByHand
from subjects import Clear

from broken.compiling import NO_PRODUCTS, OTHER_FACTORS, OTHER_PRODUCTS, PRODUCTS, Broken, OtherValues


class HiddenConstant(ByHand):
    """Multiplies by a tensor that its handler makes."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        result = func(*args, **kwargs)
        return result * torch.tensor(1.0) if func in PRODUCTS else result


class ReadsValues(ByHand):
    """Reads a value of its weight."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        result = func(*args, **kwargs)
        return result + 0.0 * args[-1].sum().item() if func in PRODUCTS else result


class Unpickled(Clear):
    """Can't be saved."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no pickles")


class FixedBatch(ByHand):
    """Asks for the batch as a number."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        result = func(*args, **kwargs)
        return result * int(result.shape[0]) / int(result.shape[0]) if func in PRODUCTS else result


BROKEN: dict[str, Broken] = {
    "modules_export": NO_PRODUCTS,
    "modules_export_strictly": NO_PRODUCTS,
    "trainable_modules_export": NO_PRODUCTS,
    "programs_hold_plain_tensors": OTHER_PRODUCTS,
    "no_constants_are_left_behind": (HiddenConstant, HiddenConstant),
    "nothing_is_read_while_exporting": (ReadsValues, ReadsValues),
    "programs_are_saved": (Unpickled, Unpickled),
    "batches_stay_dynamic": (FixedBatch, FixedBatch),
    "traced_weights_keep_their_methods": (OtherValues, OtherValues.from_plain),
    "buffers_export": OTHER_PRODUCTS,
    "instances_pass_the_boundary": OTHER_FACTORS,
    "programs_are_packaged": OTHER_PRODUCTS,
}
