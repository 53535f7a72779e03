"""Broken in how they move, are pinned, and keep their memory."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Scaled

aten = torch.ops.aten


class LeavesTheScaleBehind(Scaled):
    """A move takes the payload alone."""


@LeavesTheScaleBehind.implements(aten._to_copy.default)
def move_payload(op: Any, self: Any, **how: Any) -> Any:
    scale = self.scale.to(how.get("dtype") or self.dtype)
    return type(self)(op(self.payload, device=how.get("device")), scale, self.granularity)


class Drifts(Clear):
    """A move changes the values a little."""


@Drifts.implements(aten._to_copy.default)
def move_roughly(op: Any, self: Any, **how: Any) -> Any:
    return type(self)(op(self.elem, **how) * 1.000001)


class AlwaysCopies(Clear):
    """``to`` copies, even where nothing has to move."""

    def to(self, *args: Any, **options: Any) -> Any:
        return super().to(*args, **{**options, "copy": True})


class Blocks(Clear):
    """It can't move without blocking."""


@Blocks.implements(aten._to_copy.default)
def move_in_time(op: Any, self: Any, **how: Any) -> Any:
    if how.get("non_blocking"):
        raise RuntimeError("non_blocking is no option of this class")
    return type(self)(op(self.elem, **how))


class SaysPinned(Clear):
    """It says that it is pinned."""


@SaysPinned.implements(aten.is_pinned.default)
def always(op: Any, self: Any, device: Any = None) -> bool:
    return True


class RecordsNothing(Clear):
    """``record_stream`` does nothing."""


@RecordsNothing.implements(aten.record_stream.default)
def record_nothing(op: Any, self: Any, s: Any) -> None:
    return None


class HasTorchsData(Clear):
    """Its ``data`` is that of torch, which knows the outer tensor alone."""

    data = torch.Tensor.data


class MovesOnWrite(Clear):
    """``copy_`` puts another tensor in the place of the one inside."""


@MovesOnWrite.implements(aten.copy_.default)
def replace_inner_(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    values = src.elem if isinstance(src, MovesOnWrite) else src
    vars(self)["elem"] = values.clone()
    return self


class NeedsMemory(Clear):
    """Its product has a kernel for tensors with memory only."""


@NeedsMemory.implements(aten.mm.default)
def mm_in_memory(op: Any, self: Any, mat2: Any) -> Any:
    operands = [each.elem if isinstance(each, NeedsMemory) else each for each in (self, mat2)]
    if any(each.is_meta for each in operands):
        raise RuntimeError("there is no kernel for this device")
    return NeedsMemory(op(*operands))


class StaysHere(Clear):
    """``empty_like`` gives no heed to the device."""


@StaysHere.implements(aten.empty_like.default)
def empty_here(op: Any, self: Any, **how: Any) -> Any:
    return type(self)(op(self.elem, **{**how, "device": None}))


BROKEN = {
    "a_move_takes_every_leaf": (LeavesTheScaleBehind, LeavesTheScaleBehind.from_plain),
    "repeated_moves_are_bit_exact": (Drifts, Drifts),
    "a_move_to_its_own_device_is_no_copy": (AlwaysCopies, AlwaysCopies),
    "moves_need_not_block": (Blocks, Blocks),
    "pinning_acts_on_every_leaf": (SaysPinned, SaysPinned),
    "streams_are_recorded_of_every_leaf": (RecordsNothing, RecordsNothing),
    "a_data_swap_replaces_every_leaf": (HasTorchsData, HasTorchsData),
    "a_plain_data_swap_is_not_lost": (HasTorchsData, HasTorchsData),
    "updates_keep_leaf_addresses": (MovesOnWrite, MovesOnWrite),
    "products_run_where_the_instance_is": (NeedsMemory, NeedsMemory),
    "factories_take_the_device_they_are_told": (StaysHere, StaysHere),
}
