"""Broken between processes."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear

aten = torch.ops.aten


class CrashesWhenShared(Clear):
    """Has torch's own ``share_memory_``, which looks for memory that is not there."""

    share_memory_ = torch.Tensor.share_memory_


class SharesNothing(Clear):
    """``share_memory_`` does nothing."""

    def share_memory_(self) -> Any:
        return self


class SentAsCopy(Clear):
    """What is sent to another process is a copy."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.elem.clone(),)


class SentPlain(Clear):
    """What is sent to another process is plain."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.to_plain().__reduce_ex__(protocol)


class StacksZeros(Clear):
    """A stack is one of zeros."""


@StacksZeros.implements(aten.stack.default)
def stack_zeros(op: Any, tensors: Any, dim: int = 0) -> Any:
    return StacksZeros(torch.zeros_like(op([each.elem for each in tensors], dim)))


class TakesNoStorage(Clear):
    """Its ``new`` takes no storage: a worker's collate can't make its batch."""

    def new(self, *size: int) -> Any:
        return self.new_empty(size)


BROKEN = {
    "share_memory_shares_every_leaf": (CrashesWhenShared, CrashesWhenShared),
    "a_module_is_shared": (SharesNothing, SharesNothing),
    "a_queue_shares_the_instance": (SentAsCopy, SentAsCopy),
    "default_collate_stacks_the_values": (StacksZeros, StacksZeros),
    "a_worker_hands_over_instances": (SentPlain, SentPlain),
    "a_worker_batches_instances": (TakesNoStorage, TakesNoStorage),
}
