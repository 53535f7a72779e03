"""What C++ would answer from memory that is not there: each is answered from the inner tensors, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .errors import DataSwapError, PlainOnlyError, UnbuiltError
from .fields import VIEW_SOURCE, field_attributes, leaf_tensors, map_inner
from .geometry import match_geometry, take_bits
from .policy import Fallback
from .private import share_storage, untyped
from .report import describe

Self = TypeVar("Self", bound="Memoryless")


class Unset:
    """Stands in the class for a field, and is found only where an instance has none: one made past the constructor."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        raise UnbuiltError(owner, self.name)


class Memoryless(torch.Tensor):
    """The part of ``WrapperTensor`` that stands where a tensor's memory would be asked. Torch crashes on most of these,
    or silently does nothing."""

    to_plain: Any

    @property
    def data(self) -> torch.Tensor:
        """A detached alias. Setting it takes an instance of the same class, and takes over its inner tensors."""
        result = map_inner(self, lambda t: t.data)  # not detach(): a write to .data does not count as a new version
        share_storage(result, self)
        if VIEW_SOURCE in vars(self):
            vars(result)[VIEW_SOURCE] = vars(self)[VIEW_SOURCE]
        return result  # type: ignore[no-any-return]

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if type(other) is not type(self) or _kind(other) != _kind(self):
            given = f"{describe(other)} on {other.device}" if isinstance(other, torch.Tensor) else describe(other)
            raise DataSwapError(
                f"the data of a {describe(self)} on {self.device} can't be set to a {given}: they have to agree in "
                "class, shape, dtype and device. Use torch.utils.swap_tensors(a, b) to change one of these, "
                "a.copy_(b) to change the values."
            )
        new = {name: vars(other)[name] for name in field_attributes(other)}  # first: ``p.data = p.to(device)`` may be p
        for name in field_attributes(self):
            del vars(self)[name]
        vars(self).update(new)
        with torch.no_grad():
            match_geometry(self)
        take_bits(self, other)
        share_storage(self, other)

    def data_ptr(self) -> int:
        """0: there is no memory. Torch would add the offset of a view, and take what is not 0 for an address: in its
        deep copy, for one. ``lamina.leaf_tensors`` gives the tensors that have one."""
        return 0

    def share_memory_(self: Self) -> Self:
        """Moves the inner tensors to shared memory."""
        for tensor in leaf_tensors(self):
            tensor.share_memory_()
        return self

    def is_shared(self) -> bool:
        return all(t.is_shared() for t in leaf_tensors(self))

    def new(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # type: ignore[override]
        """Torch's old constructor, which default collation in a DataLoader's workers calls: an instance over a new
        inner tensor where the class has exactly one that holds its values, else a plain tensor."""
        cls: Any = type(self)
        if args and isinstance(args[0], (torch.UntypedStorage, torch.TypedStorage)) and not _has_memory(args[0]):
            raise PlainOnlyError("new(storage) with a wrapper's own storage", cls)
        if cls.fallback is Fallback.UNWRAP:
            return map_inner(self, lambda t: t.new(*args, **kwargs))  # type: ignore[no-any-return]
        return self.detach().to_plain().new(*args, **kwargs)  # type: ignore[attr-defined, no-any-return]

    def apply_(self: Self, function: Callable[[Any], Any]) -> Self:
        """Replaces each value by ``function(value)``, as for plain CPU tensors.

        Raises:
            RuntimeError: the tensor requires grad.
        """
        if self.requires_grad:
            raise RuntimeError(f"apply_() takes no part in autograd: call it on {type(self).__name__}.detach()")
        wrapper: Any = self
        self.copy_(wrapper.to_plain().apply_(function))
        return self

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise PlainOnlyError("dlpack", type(self))

    def __dlpack_device__(self) -> Any:
        raise PlainOnlyError("dlpack", type(self))

    def tolist(self) -> Any:
        detached: Any = self.detach()
        return detached.to_plain().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        wrapper: Any = self.detach() if force else self
        return wrapper.to_plain().numpy(force=force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError(f"a {type(self).__name__} has no memory to share with numpy: leave copy=False out")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and spec:
            return format(self.item(), spec)
        text: str = super().__format__(spec)  # type: ignore[no-untyped-call]
        return text


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def _has_memory(storage: torch.UntypedStorage | torch.TypedStorage) -> bool:
    try:
        return (untyped(storage) if isinstance(storage, torch.TypedStorage) else storage).data_ptr() != 0
    except RuntimeError:  # torch's own refusal: the storage of a wrapper
        return False
