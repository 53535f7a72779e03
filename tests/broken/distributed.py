"""Broken in how they are sharded, sent and saved."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear, Doubled
from torch.distributed.tensor import DTensor

import lamina

aten = torch.ops.aten


class Hookless(Clear):
    """FSDP2 finds no all-gather hooks."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("fsdp_"):
            raise AttributeError(name)
        return super().__getattribute__(name)


class HooksTakeLess(Clear):
    """Its hook does not take the policy."""

    def fsdp_pre_all_gather(self, mesh: Any, outer_size: torch.Size) -> Any:  # type: ignore[override]
        return super().fsdp_pre_all_gather(mesh, outer_size, (), None, None)


class KeepsItsDtype(Clear):
    """Its hook does not look at the policy."""

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: Any, module: Any, mp_policy: Any
    ) -> Any:
        del mp_policy
        return super().fsdp_pre_all_gather(mesh, outer_size, outer_stride, module, None)


class GathersOther(Clear):
    """What it makes of the gathered leaves are other values."""

    def fsdp_post_all_gather(self, outputs: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        return super().fsdp_post_all_gather(tuple(leaf + 1 for leaf in outputs), metadata, *args, **kwargs)


class AloneOnly(Clear):
    """Right in a world of one: on two ranks it sends zeros."""

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: Any, module: Any, mp_policy: Any
    ) -> Any:
        leaves, rows = super().fsdp_pre_all_gather(mesh, outer_size, outer_stride, module, mp_policy)
        return (leaves if mesh.size() == 1 else tuple(torch.zeros_like(leaf) for leaf in leaves)), rows


class EvenOnly(Clear):
    """Loses the last of five rows."""

    def fsdp_post_all_gather(self, outputs: Any, rows: Any, *args: Any, **kwargs: Any) -> Any:
        whole = super().fsdp_post_all_gather(outputs, rows, *args, **kwargs)
        if whole is not None and rows % 2:
            whole[0].elem[-1].zero_()
        return whole


class KeepsItsValues(Clear):
    """``copy_`` writes nothing: what rank 0 sends does not arrive."""


@KeepsItsValues.implements(aten.copy_.default)
def no_copy(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    return self


class CopiesTwice(Clear):
    """``copy_`` of a plain tensor, which is how values and gradients come back from a bucket, stores twice of it."""


@CopiesTwice.implements(aten.copy_.default)
def copy_twice(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if isinstance(self, CopiesTwice):
        self.elem.copy_(src.elem if isinstance(src, CopiesTwice) else src * 2)
        return self
    return op(self, src.elem, non_blocking)


class MixesPayload(Doubled):
    """Beside a DTensor, and in a collective, it gives its payload away as values."""


def give_away(cls: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if any(issubclass(each, DTensor) for each in types) or op.namespace == "c10d":
        return op(*torch.utils._pytree.tree_map_only(cls, lambda each: each.elem, args), **(kwargs or {}))
    return super(MixesPayload, cls).__torch_dispatch__(op, types, args, kwargs)


# A body that defines it is refused.
MixesPayload.__torch_dispatch__ = classmethod(give_away)  # type: ignore[assignment]


class ViewsArePlain(Clear):
    """A view of it is a plain tensor."""


@ViewsArePlain.implements(aten.view.default)
def plain_view(op: Any, self: Any, size: Any) -> Any:
    return op(self.elem if isinstance(self, ViewsArePlain) else self, size)


class PiecesArePlain(Clear):
    """``split``, and so ``chunk``, gives plain tensors."""


@PiecesArePlain.implements(aten.split.Tensor, aten.split_with_sizes.default)
def plain_pieces(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return op(self.elem, *args, **kwargs)


class FirstPieceOnly(Clear):
    """All pieces are the first one."""


@FirstPieceOnly.implements(aten.split.Tensor)
def first_piece(op: Any, self: Any, split_size: Any, dim: int = 0) -> Any:
    pieces = op(self.elem, split_size, dim)
    return [FirstPieceOnly(pieces[0]) for _ in pieces]


class OneScale(lamina.WrapperTensor):
    """Its scale has no dims: there is none to shard."""

    payload: torch.Tensor
    scale: torch.Tensor
    fallback = lamina.Fallback.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor, **_: Any) -> OneScale:
        scale = values.abs().amax()
        return cls(values / scale, scale)

    def decode(self) -> torch.Tensor:
        return self.payload * self.scale


class SlicesFromZero(Clear):
    """A slice that begins further on has other values."""


@SlicesFromZero.implements(aten.slice.Tensor)
def slice_from_zero(op: Any, self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    piece = op(self.elem, dim, start, end, step)
    return SlicesFromZero(piece * 2 if start else piece)


class Late(torch.Tensor):
    """Its inner tensor is set in ``__init__``."""

    def __new__(cls, elem: torch.Tensor) -> Late:
        return torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype)  # type: ignore[no-any-return]

    def __init__(self, elem: torch.Tensor) -> None:
        self.elem = elem

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], *_: Any) -> Late:
        return cls(inner["elem"])

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = torch.utils._pytree.tree_map_only(cls, lambda each: each.elem, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, op(*args, **kwargs))


class SavedRounded(Clear):
    """Checkpoints hold other bits."""

    def saved_form(self) -> torch.Tensor:
        rounded = self.elem.half().float()
        return self if torch.equal(rounded, self.elem) else SavedRounded(rounded)


class StagedPlain(Clear):
    """The copy that an asynchronous checkpoint stages is a plain tensor."""


@StagedPlain.implements(aten.new_empty.default)
def plain_empty(op: Any, self: Any, size: Any, **how: Any) -> Any:
    return op(self.elem, size, **how)


BROKEN: dict[str, tuple[type[torch.Tensor], Any]] = {
    "fully_shard_gathers_the_class": (Hookless, Hookless),
    "fully_shard_trains_as_unsharded": (GathersOther, GathersOther),
    "optimizer_state_is_sharded": (GathersOther, GathersOther),
    "fsdp2_finds_its_hooks": (HooksTakeLess, HooksTakeLess),
    "a_mixed_precision_policy_casts": (KeepsItsDtype, KeepsItsDtype),
    "ddp_sends_frozen_weights_and_buffers": (KeepsItsValues, KeepsItsValues),
    "two_ranks_train_as_one": (AloneOnly, AloneOnly),
    "uneven_shards_train_as_one": (EvenOnly, EvenOnly),
    "ddp_starts_and_trains": (CopiesTwice, CopiesTwice),
    "ddp_replicas_start_from_one_model": (KeepsItsValues, KeepsItsValues),
    "dtensors_mix_with_instances": (MixesPayload, MixesPayload.from_plain),
    "dtensors_hold_the_class": (ViewsArePlain, ViewsArePlain),
    "dtensors_on_two_ranks_hold_the_class": (FirstPieceOnly, FirstPieceOnly),
    "distribute_tensor_cuts_values": (PiecesArePlain, PiecesArePlain),
    "scattered_inputs_keep_the_class": (PiecesArePlain, PiecesArePlain),
    "collectives_send_values": (MixesPayload, MixesPayload.from_plain),
    "inner_tensors_keep_the_rank": (OneScale, OneScale.from_plain),
    "pieces_of_a_checkpoint_are_right": (SlicesFromZero, SlicesFromZero),
    "instances_are_whole_once_made": (Late, Late),
    "dcp_round_trip_is_exact": (SavedRounded, SavedRounded),
    "async_dcp_round_trip_is_exact": (StagedPlain, StagedPlain),
    "a_sharded_model_goes_on_from_its_checkpoint": (SavedRounded, SavedRounded),
}
