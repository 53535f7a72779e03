"""What torch.compile asks of a wrapper beyond the flatten protocol."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from . import copying
from .policy import Fallback


class Compilable(torch.Tensor):
    """The part of ``WrapperTensor`` that AOTAutograd calls."""

    fallback: ClassVar[Any]
    to_plain: Any
    __tensor_flatten__: Any
    __tensor_unflatten__: Any

    def _stable_hash_for_caching(self) -> str:
        return copying.stable_hash(self)

    def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
        """A compiled backward was traced with another tangent: what can be had of it without loss, or None."""
        if expected_type is torch.Tensor:
            return self.to_plain()
        if expected_type is None and type(self).fallback is Fallback.UNWRAP:
            inner = {name: getattr(self, name) for name in self.__tensor_flatten__()[0]}
            return type(self).__tensor_unflatten__(inner, context, self.size(), self.stride())
        return None
