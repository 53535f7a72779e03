"""Broken in what they give where their memory is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from subjects import Clear

# ruff: noqa: ARG002 - signatures are those of schemas and torch's methods
aten = torch.ops.aten


class PointsAnywhere(Clear):
    """``data_ptr`` is an address of nothing."""

    def data_ptr(self) -> int:
        return 4096


class ShowsZeros(Clear):
    """Its storage is one of zeros."""

    def untyped_storage(self) -> Any:
        return torch.zeros(4, 8).untyped_storage()


class CountsOn(Clear):
    """``item`` is one more."""


@CountsOn.implements(aten._local_scalar_dense.default)
def one_more(op: Any, self: Any) -> Any:
    return op(self.elem) + 1


class ZerosInNumpy(Clear):
    """``numpy`` gives zeros."""

    def numpy(self, *, force: bool = False) -> Any:
        return np.zeros(tuple(self.shape), dtype=np.float32)


class Torchs(Clear):
    """Gives what torch gives by itself: a capsule around a null pointer."""

    __dlpack__ = torch.Tensor.__dlpack__
    __dlpack_device__ = torch.Tensor.__dlpack_device__


class ZerosInDlpack(Torchs):
    """Its capsule holds zeros."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros(4, 8).__dlpack__()


class BesidesItself(torch.Tensor):
    """Has memory of its own, of zeros, beside the tensor that holds its values."""

    elem: torch.Tensor

    @classmethod
    def of(cls, elem: torch.Tensor) -> Any:
        self: Any = torch.Tensor._make_subclass(cls, torch.zeros(elem.shape))
        self.elem = elem
        return self

    def to_plain(self) -> torch.Tensor:
        return self.elem


BROKEN = {
    "data_ptr_is_no_other_address": (PointsAnywhere, PointsAnywhere),
    "the_storage_is_read_safely": (ShowsZeros, ShowsZeros),
    "values_are_read_out": (CountsOn, CountsOn),
    "numpy_gives_the_values": (ZerosInNumpy, ZerosInNumpy),
    "dlpack_gives_the_values": (Torchs, Torchs),
    "numpy_takes_the_values_by_dlpack": (ZerosInDlpack, ZerosInDlpack),
    "memory_taken_past_the_class_is_no_garbage": (BesidesItself, BesidesItself.of),
}
