"""A wrapper class that no other class knows: what a user's class meets when two libraries come together."""

from __future__ import annotations

from typing import Any

import torch

from ...subclasses.core.private import make_wrapper, map_nested


class ForeignTensor(torch.Tensor):
    """Stands for its inner tensor, and declines (``NotImplemented``) where a tensor of another class takes part."""

    held: torch.Tensor

    def __new__(cls, inner: torch.Tensor) -> ForeignTensor:
        made: ForeignTensor = make_wrapper(cls, inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device)
        made.held = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], *_: Any) -> ForeignTensor:
        return cls(inner["held"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if not all(issubclass(each, (cls, torch.nn.Parameter)) for each in types):
            return NotImplemented
        args, kwargs = map_nested(lambda each: each.held if isinstance(each, cls) else each, (args, kwargs or {}))
        return map_nested(lambda each: cls(each) if isinstance(each, torch.Tensor) else each, func(*args, **kwargs))

    def __repr__(self) -> str:  # type: ignore[override]
        return f"ForeignTensor({self.held!r})"
