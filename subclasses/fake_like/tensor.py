"""FakeLikeTensor: shape, stride, dtype, aliasing and a claimed device, and no data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch

from ..core.carried import carry
from ..core.copying import extras
from ..core.errors import DataSwapError, LayoutError
from ..core.policy import Fallback
from ..core.private import (
    TRACERS,
    OpOverload,
    load_location,
    make_wrapper,
    metadata_only,
    never_compile,
    set_conj,
    set_neg,
    several_at_once,
    share_storage,
    storage_id,
)
from ..core.report import describe
from ..core.wrapper import WrapperTensor
from .above import decide_by_claim, decided_above
from .answer import answer_to
from .claims import ANSWERS, device_of
from .composites import take_apart
from .geometry import become
from .hot import Ways, answered
from .materials import Unreadable
from .metadata import Metadata, metadata_of, recognize
from .moves import Moves
from .oracle import carrier_of
from .plan import Run
from .signature import Way
from .storages import Storage, storage_of

META = torch.device("meta")


class _Carrier:
    """The ``meta`` of an instance that was made without: what C++ knows of it, as a plain tensor on the meta device."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        vars(instance)["meta"] = found = carrier_of(instance)
        return found


class _Claim:
    """The ``claim`` of an instance that was made without: that of its metadata."""

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance._l_metadata.device


def _unflattened(cls: Any, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
    if isinstance(inner["meta"], cls):  # a factory's, of a graph that runs inside FakeLikeMode
        inner = {"meta": inner["meta"].meta}
    made = cls._generated.unflatten(cls, inner, context, size, stride)
    if recognize(made):
        share_storage(made, inner["meta"])  # others of the graph may be views of it
    return made


never_compile(_unflattened)


def _complete(cls: Any) -> None:
    cls._l_answers, cls._l_ways = {}, {}
    cls.__torch_dispatch__ = classmethod(answered)
    cls.meta, cls.claim = _Carrier(), _Claim()
    cls.__tensor_unflatten__ = classmethod(_unflattened)


class FakeLikeTensor(Moves, Unreadable, WrapperTensor):
    """A tensor that computes metadata, as its claimed device would, and holds no data.

    >>> x = FakeLikeTensor.from_tensor(torch.ones(4, 8), "cuda:3")
    >>> x @ x.t()
    FakeLikeTensor(size=(4, 4), dtype=torch.float32, device='cuda:3')
    """

    meta: torch.Tensor
    claim: torch.device

    fallback = Fallback.UNWRAP
    precedence = -100
    valueless: ClassVar[bool] = True
    _l_answers: ClassVar[dict[OpOverload, Way]]  # of the operators that are answered by replay
    _l_ways: ClassVar[Ways]  # of those of them that ran
    _l_metadata: ClassVar[Metadata | None] = None  # an instance's own; none where PyTorch traces

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _complete(cls)

    @classmethod
    def around(cls, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        decide = decided_above(op, cls)
        if decide is not None:
            return lambda args, kwargs: decide(*args, **kwargs)
        return answer_to(cls, op, run, partial(builder, cls))

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.claim

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, device: Any = None) -> FakeLikeTensor:
        """One with the metadata of ``tensor``, a Parameter if that is one; in memory of its own, as
        ``tensor.to(device)`` is.

        Args:
            tensor: strided, real or fake.
            device: what the result claims; that of ``tensor`` by default. It need not exist on this machine.

        Raises:
            LayoutError: ``tensor`` is sparse or nested.
            TypeError: the device has no such dtype.
        """
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise LayoutError(cls, "meta", torch.jagged if tensor.is_nested else tensor.layout)
        claim = device_of(tensor.device if device is None else device)
        if isinstance(tensor, TRACERS):
            carrier = torch.empty_like(tensor, device=META, requires_grad=False)
            return cls._generated.make(cls, carrier, claim)  # type: ignore[no-any-return]
        fake = fake_of(metadata_of(tensor, claim), cls)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, tensor.requires_grad)  # type: ignore[return-value]
        fake.requires_grad_(tensor.requires_grad)
        return fake

    @classmethod
    def from_plain(cls, values: torch.Tensor, **context: Any) -> Any:
        """``from_tensor``; a gradient would have no values, so it does not flow back to ``values``."""
        return cls.from_tensor(values.detach(), context.get("claim"))

    def new_tensor(
        self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
    ) -> Any:
        """As ``torch.Tensor.new_tensor``: of this dtype and claimed device, unless others are named. A number
        on the CPU is a real tensor, which mixes with any device and can be read: ``torch.nn.init`` does."""
        if isinstance(data, FakeLikeTensor):
            copy = data.detach().to(self.device if device is None else device, dtype or self.dtype, copy=True)
            return copy.requires_grad_(requires_grad)
        with metadata_only():
            real = torch.empty(0, dtype=self.dtype).new_tensor(data, dtype=dtype)
        where = self.device if device is None else device_of(device)
        if where.type == "cpu" and not real.dim():
            return real.requires_grad_(requires_grad)
        return FakeLikeTensor.from_tensor(real, where).requires_grad_(requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        parts = [f"size={tuple(self.shape)}", f"dtype={self.dtype}", f"device='{self.device}'"]
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        text = f"{type(self).__name__}({', '.join(parts)})"
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    @property
    def data(self) -> torch.Tensor:
        """A detached alias. Setting it takes over metadata and storage of another one."""
        alias = fake_of(self.metadata, type(self))
        share_storage(alias, self)
        return alias

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, FakeLikeTensor) or (other.dtype, other.device) != (self.dtype, self.device):
            raise DataSwapError(
                f"the data of a {describe(self)} on {self.device} can't be set to a {describe(other)} on "
                f"{other.device}: they have to agree in class, dtype and device. Use torch.utils.swap_tensors(a, b)."
            )
        become(self, other, other.metadata)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        """Two that share a storage do so in the copy. That of a Parameter has no gradient, as with torch's own."""
        copied = super().__deepcopy__(memo)
        if isinstance(self, torch.nn.Parameter):
            copied.grad = None
        if self._l_metadata is None:
            return copied
        key = FakeLikeTensor, storage_id(self)
        if key not in memo:
            memo[key] = torch.empty(self.untyped_storage().nbytes(), dtype=torch.uint8, device=META)
        become(copied, memo[key], self.metadata)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What shares a storage does so in a copy (``copy.copy``: with the original), and in what one pickle gives."""
        storage = None if self._l_metadata is None else storage_of(self)
        return _rebuilt, (type(self), self.metadata, self.requires_grad, extras(self), storage)

    @property
    def metadata(self) -> Metadata:
        """All that it is: two with the same metadata have the same object here."""
        return self._l_metadata or metadata_of(self, self.device)


def fake_of(metadata: Metadata, cls: Any = None) -> FakeLikeTensor:
    """A tensor of such metadata, in a storage of its own."""
    fake: FakeLikeTensor = builder(cls or FakeLikeTensor, metadata)((), {})
    return fake


def builder(cls: Any, metadata: Metadata, base: int | None = None) -> Run:
    """What makes instances with this metadata: each in a storage of its own, from no arguments, or in that of the
    argument at the position ``base``."""
    size, stride, dtype, layout = metadata.size, metadata.stride, metadata.dtype, torch.strided
    offset = metadata.offset or None  # None is 0, and 0.15 us cheaper

    def made(args: Any, kwargs: Any) -> Any:
        fake = make_wrapper(cls, size, stride, offset, None, dtype, layout, META)
        fake._l_metadata = metadata
        if base is not None:
            share_storage(fake, args[base])
        return fake

    def made_with_bits(args: Any, kwargs: Any) -> Any:
        fake = made(args, kwargs)
        set_conj(fake, metadata.conj)
        set_neg(fake, metadata.neg)
        return fake

    return made_with_bits if metadata.conj or metadata.neg else made


def _rebuilt(
    cls: Any, metadata: Metadata, requires_grad: bool, attributes: dict[str, Any], storage: Storage | None = None
) -> FakeLikeTensor:
    """The inverse of ``__reduce_ex__``."""
    metadata = metadata.on(device_of(load_location(metadata.device)))
    fake = fake_of(metadata, cls)
    if storage is not None:
        become(fake, storage, metadata)
    fake.requires_grad_(requires_grad)
    vars(fake).update(attributes)
    return fake


torch.serialization.add_safe_globals([_rebuilt])
never_compile(fake_of)
never_compile(builder(FakeLikeTensor, metadata_of(torch.empty(0, device=META), META)))
_complete(FakeLikeTensor)
several_at_once(FakeLikeTensor)
decide_by_claim(FakeLikeTensor)
take_apart()
carry(FakeLikeTensor, ANSWERS)
