"""FakeLikeTensor: shape, stride, dtype, aliasing and a claimed device, and no data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.policy import Fallback
from ..core.private import OpOverload, below_python, make_wrapper, never_compile, set_conj, set_neg
from ..core.wrapper import WrapperTensor
from .answer import answer_to
from .metadata import Metadata, metadata_of

META = torch.device("meta")


class _Carrier:
    """The ``meta`` of an instance that was made without: what C++ knows of it, as a plain tensor on the meta device."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        with below_python():
            vars(instance)["meta"] = found = torch.ops.aten.alias.default(instance)
        return found


class _Claim:
    """The ``claim`` of an instance that was made without: that of its metadata."""

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.metadata.device


class FakeLikeTensor(WrapperTensor):
    """A tensor that computes metadata, as its claimed device would, and holds no data."""

    meta: torch.Tensor
    claim: torch.device

    fallback = Fallback.UNWRAP
    precedence = -100
    metadata: Metadata | None = None

    @classmethod
    def around(cls, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        return answer_to(cls, op, run, fake_of)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.claim

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, device: Any = None) -> FakeLikeTensor:
        """One with the metadata of ``tensor``; in memory of its own, as ``tensor.to(device)`` is."""
        claim = tensor.device if device is None else torch.device(device)
        return fake_of(metadata_of(tensor, claim)).requires_grad_(tensor.requires_grad)


def fake_of(metadata: Metadata) -> FakeLikeTensor:
    """A tensor of such metadata, in a storage of its own."""
    fake: FakeLikeTensor = make_wrapper(
        FakeLikeTensor,
        metadata.size,
        metadata.stride,
        metadata.offset,
        None,
        metadata.dtype,
        torch.strided,
        META,
    )
    fake.metadata = metadata
    if metadata.conj:
        set_conj(fake, True)
    if metadata.neg:
        set_neg(fake, True)
    return fake


never_compile(fake_of)
FakeLikeTensor.meta = _Carrier()  # type: ignore[assignment]
FakeLikeTensor.claim = _Claim()  # type: ignore[assignment]
