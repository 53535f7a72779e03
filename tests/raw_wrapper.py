"""A wrapper written without lamina, as the base of classes that are broken in their ``__torch_dispatch__``."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


class Raw(torch.Tensor):
    """Holds one tensor, and computes on it; other classes count as plain. Subclasses override ``answer``."""

    elem: torch.Tensor

    def __new__(cls, elem: torch.Tensor) -> Raw:
        made: Raw = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.shape,
            elem.stride(),
            elem.storage_offset(),
            dtype=elem.dtype,
            device=elem.device,
        )
        made.elem = elem
        return made

    def __init__(self, elem: torch.Tensor) -> None:
        """Takes what ``__new__`` has used."""

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.elem!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], *_: Any) -> Raw:
        return cls(inner["elem"])

    @classmethod
    def answer(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG003 - overriders ask it
        inner_args, inner_kwargs = tree_map_only(Raw, lambda each: each.elem, (args, kwargs))
        out = tree_map_only(torch.Tensor, cls, func(*inner_args, **inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs, out)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.answer(func, types, args, kwargs or {})
