"""What a tensor is without its values, as one object for each kind: two tensors are alike where it is the same."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from ..core.private import is_tracing, share_storage


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

    def __reduce__(self) -> Any:
        fields = (self.size, self.stride, self.offset, self.dtype, self.device, self.conj, self.neg)
        return interned, fields

    def on(self, device: torch.device) -> Metadata:
        """The same on another device."""
        return interned(self.size, self.stride, self.offset, self.dtype, device, self.conj, self.neg)

    def __copy__(self) -> Metadata:
        return self

    def __deepcopy__(self, memo: Any) -> Metadata:
        return self


_LACKING = {"mps": (torch.float64, torch.complex128)}
_lock = threading.Lock()
_known: weakref.WeakValueDictionary[tuple[object, ...], Metadata] = weakref.WeakValueDictionary()


def metadata_of(tensor: torch.Tensor, device: torch.device) -> Metadata:
    """That of a strided tensor, but for the device."""
    size, stride, offset = tuple(tensor.size()), tensor.stride(), int(tensor.storage_offset())
    return interned(size, stride, offset, tensor.dtype, device, tensor.is_conj(), tensor.is_neg())


def recognize(fake: Any) -> bool:
    """Gives ``fake``, which comes out of code that PyTorch has traced, its metadata. False: it is being traced, or its
    sizes are symbols."""
    inner = vars(fake).get("meta")
    if type(inner) is not torch.Tensor or is_tracing() or not all(type(n) is int for n in fake.shape):
        return False
    share_storage(fake, inner)  # so what it is made of stays alive, and two that share it still do
    fake._l_metadata = metadata_of(fake, fake.claim)
    del vars(fake)["meta"]
    return True


def interned(*fields: Any) -> Metadata:
    """The one object with these fields.

    Raises:
        TypeError: the device has no such dtype.
    """
    with _lock:
        found = _known.get(fields)
        if found is None:
            _check_dtype(fields[3], fields[4])
            found = _known[fields] = Metadata(*fields)
        return found


def _check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    if dtype in _LACKING.get(device.type, ()):
        raise TypeError(f"{device.type} tensors can't be of {dtype}: the framework doesn't support it. Use float32.")


torch.serialization.add_safe_globals([interned])
