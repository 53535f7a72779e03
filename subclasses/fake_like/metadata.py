"""What a tensor is without its values, as one object for each kind: two tensors are alike where it is the same."""

from __future__ import annotations

import weakref

import torch


class Metadata:
    """Size, stride and storage offset in elements; dtype; the claimed device; the conj and neg bits.

    Made by ``metadata_of``, which gives one object for equal values: comparing and hashing go by identity.
    """

    __slots__ = ("__weakref__", "conj", "device", "dtype", "neg", "offset", "size", "stride")

    def __init__(
        self,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        offset: int,
        dtype: torch.dtype,
        device: torch.device,
        conj: bool,
        neg: bool,
    ) -> None:
        self.size, self.stride, self.offset = size, stride, offset
        self.dtype, self.device, self.conj, self.neg = dtype, device, conj, neg

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.size)} stride {self.stride} on {self.device}"


_known: weakref.WeakValueDictionary[tuple[object, ...], Metadata] = weakref.WeakValueDictionary()


def metadata_of(tensor: torch.Tensor, device: torch.device) -> Metadata:
    """That of a strided tensor, but for the device."""
    fields = (
        tuple(tensor.size()),
        tensor.stride(),
        int(tensor.storage_offset()),
        tensor.dtype,
        device,
        tensor.is_conj(),
        tensor.is_neg(),
    )
    found = _known.get(fields)
    if found is None:  # two threads may each make one: then calls with them are computed twice
        found = _known[fields] = Metadata(*fields)
    return found
