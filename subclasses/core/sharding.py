"""The FSDP2 hooks: a sharded wrapper is gathered leaf by leaf and put together again.

Without them FSDP2 silently unwraps a wrapper to whatever one inner tensor is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch

from .errors import ShardingError, UnevenShardingError
from .fields import is_wrapper, leaf_tensors, map_inner


def leaves_to_gather(
    wrapper: Any, world_size: int, outer_size: torch.Size, dtype: torch.dtype | None
) -> tuple[tuple[torch.Tensor, ...], int]:
    """The leaves of a shard, each padded along dim 0 to what an even shard would hold, and the rows of the whole.
    ``dtype`` is that of a mixed-precision policy."""
    rows = outer_size[0]
    padded = -(-rows // world_size)
    leaves = tuple(leaf_tensors(cast_to(wrapper, dtype)))
    for leaf in leaves:
        if leaf.dim() == 0 or leaf.size(0) != wrapper.size(0):
            raise ShardingError(type(wrapper), tuple(leaf.shape), tuple(wrapper.shape))
    if rows % world_size and any(leaf.shape[1:] != wrapper.shape[1:] for leaf in leaves):
        raise UnevenShardingError(type(wrapper), rows, world_size)
    return tuple(_padded(leaf, padded) for leaf in leaves), rows


def cast_to(wrapper: Any, dtype: torch.dtype | None) -> Any:
    """A shard in the dtype that a mixed-precision policy computes in, as its class casts; itself where that has one
    dtype only, or none is asked for."""
    if dtype in (None, wrapper.dtype) or not wrapper.is_floating_point():
        return wrapper
    cast = wrapper.detach().to(dtype)
    return cast if type(cast) is type(wrapper) else wrapper


def refresh(whole: Any, shard: Any, gathered: int) -> None:
    """Brings the leaves of ``whole`` that were not gathered up to date with ``shard``: casting made copies of them."""
    whole = whole.to_local() if hasattr(whole, "to_local") else whole
    kept, source = (list(leaf_tensors(each))[gathered:] for each in (whole, shard))
    for leaf, fresh in zip(kept, source, strict=False):
        if leaf.data_ptr() != fresh.data_ptr():
            leaf.copy_(fresh)


def from_gathered(shard: Any, gathered: Sequence[torch.Tensor], rows: int) -> Any:
    """The whole wrapper: ``shard`` with the gathered leaves, cut to ``rows``, in place of its own. In a world of one
    torch gathers the first leaf only: the others of the shard are those of the whole."""
    leaves = [leaf[:rows] for leaf in gathered]
    return _replaced(shard, iter(leaves + list(leaf_tensors(shard))[len(leaves) :]))


def _padded(leaf: torch.Tensor, rows: int) -> torch.Tensor:
    if leaf.size(0) == rows:
        return leaf.contiguous()
    return torch.cat([leaf, leaf.new_zeros((rows - leaf.size(0), *leaf.shape[1:]))])


def _replaced(wrapper: Any, leaves: Iterator[torch.Tensor]) -> Any:
    return map_inner(wrapper, lambda t: _replaced(t, leaves) if is_wrapper(t) else next(leaves))


Self = TypeVar("Self", bound="Shardable")


class Shardable(torch.Tensor):
    """The part of ``WrapperTensor`` that FSDP2 calls."""

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: Any, module: Any, mp_policy: Any
    ) -> tuple[tuple[torch.Tensor, ...], Any]:
        """The leaves that FSDP2 gathers for this shard.

        Raises:
            ShardingError: an inner tensor does not follow dim 0.
        """
        return leaves_to_gather(self, mesh.size(), outer_size, getattr(mp_policy, "param_dtype", None))

    def fsdp_post_all_gather(
        self: Self, all_gather_outputs: Any, metadata: Any, param_dtype: torch.dtype, *, out: Any = None
    ) -> tuple[Self, tuple[torch.Tensor, ...]] | None:
        """The whole wrapper from the gathered leaves; with ``out`` they are its leaves already.
        ``param_dtype`` is that of a mixed-precision policy, or its own."""
        shard = cast_to(self, param_dtype)
        if out is not None:
            refresh(out, shard, len(all_gather_outputs))
            return None
        whole = from_gathered(shard, all_gather_outputs, metadata)
        return whole, tuple(leaf_tensors(whole))[: len(all_gather_outputs)]  # FSDP2 frees these, not the shard's own
