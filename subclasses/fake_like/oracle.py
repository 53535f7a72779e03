"""The metadata of a call that was not seen before: asked of torch's own fake tensors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    UnsupportedOperatorException,
    below_python,
    quietly,
    set_conj,
    set_neg,
    with_math_bits,
)
from .corrections import corrected, laid_out
from .guardless import lacks_guard, on_the_cpu
from .zeros import on_zeros

META = torch.device("meta")


class _Mode(FakeTensorMode):
    """Torch's mode without its memory: our cache stands before it. What has no fake kernel there runs on zeros here: a
    real kernel on the claimed device can't."""

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=False)
        self.cache_enabled = False
        self.claim = META

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return corrected(func, args, kwargs or {}, self._computed)

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().dispatch(func, (), args, kwargs)
        except UnsupportedOperatorException as error:
            if error.func is not func:
                raise
        return on_zeros(func, args, kwargs, self.fake_of)

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """One of the metadata of a real tensor; claims what the call is about."""
        if tensor.layout is not torch.strided:
            return self.from_tensor(tensor)
        return FakeTensor(self, _unfilled(tensor), self.claim)


_local = threading.local()


def _mode() -> _Mode:
    """A mode takes 30 us to make, a tenth of a call: each thread has one, which keeps nothing of the calls. Not before
    it is used: the first brings torch's compiler in."""
    if not hasattr(_local, "mode"):
        _local.mode = _Mode()
    mode: _Mode = _local.mode
    return mode


class Oracle:
    """One call, computed on torch's fake tensors that stand for ours: those of one storage share one there.

    C++ knows a carrier as a tensor on the meta device, and hands that device on where it makes a tensor "like" another
    one: as an argument of the call, it stands for ``claim``.
    """

    def __init__(self, fake: type, claim: torch.device) -> None:
        self.mode = _mode()
        self.fake, self.claim = fake, claim
        self._made: dict[int, torch.Tensor] = {}

    def stand_ins(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with torch's fake tensors in place of ours. A tensor that is given twice has one stand-in."""
        return [self.stand_in(value) for value in args], {key: self.stand_in(value) for key, value in kwargs.items()}

    def compute(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of the call with stand-ins."""
        self.mode.claim = self.claim
        with self.mode, quietly():
            try:
                result = with_math_bits(op, *args, **kwargs)
            except RuntimeError as error:
                if not lacks_guard(error):
                    raise
                result = on_the_cpu(partial(with_math_bits, op), args, kwargs)
            return laid_out(op, result, args, kwargs)

    def stand_in(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._made:
                self._made[id(value)] = self._tensor(value)
            return self._made[id(value)]
        if isinstance(value, (list, tuple)):
            return [self.stand_in(each) for each in value]
        return self.claim if isinstance(value, torch.device) and value == META else value

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, self.fake):
            return FakeTensor(self.mode, carrier_of(value), value.device)
        if value.device == META:
            return FakeTensor(self.mode, carrier_of(value), self.claim)
        if value.layout is not torch.strided or value.is_nested:
            return self.mode.from_tensor(value)
        return FakeTensor(self.mode, _unfilled(value), value.device)


def carrier_of(tensor: torch.Tensor) -> torch.Tensor:
    """What C++ knows of a wrapper, as a plain tensor: an alias of its own. No view: it would keep the wrapper."""
    return _on_storage(tensor, tensor.untyped_storage())


def _unfilled(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the meta device with the metadata of a real one."""
    return _on_storage(tensor, torch.UntypedStorage(tensor.untyped_storage().nbytes(), device=META))


def _on_storage(like: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    with below_python(), torch.no_grad():
        made = torch.empty(0, dtype=like.dtype, device=META)
        made.set_(storage, like.storage_offset(), like.size(), like.stride())
    set_conj(made, like.is_conj())
    set_neg(made, like.is_neg())
    return made


def claim_of(fake: type, args: Sequence[Any], kwargs: Mapping[str, Any], default: torch.device) -> torch.device:
    """The device that a call is about: that of its tensors, of one with dimensions if there is any."""
    found = [tensor for tensor in tensors_in((args, dict(kwargs))) if isinstance(tensor, fake)]
    return next((t.device for t in found if t.dim()), found[0].device if found else default)
