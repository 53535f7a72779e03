"""A wrapper class as users write them, without the help of ``WrapperTensor``: sound, and easy to break in one place."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


class ByHand(torch.Tensor):
    """Transparent: one inner tensor, and a tag that results inherit."""

    elem: torch.Tensor
    tag: Any

    def __new__(cls, elem: torch.Tensor, tag: Any = "", size: Any = None, stride: Any = None) -> Any:
        if elem.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("this would cut the gradient: pass elem.detach()")
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size() if size is None else size,
            strides=elem.stride() if stride is None else stride,
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=elem.device,
        )
        self.elem, self.tag = elem, tag
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{type(self).__name__}(...)"

    def __tensor_flatten__(self) -> Any:
        return ["elem"], self.tag

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], tag, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tags: list[Any] = []

        def unwrap(each: ByHand) -> torch.Tensor:
            tags.append(each.tag)
            return each.elem

        plain_args, plain_kwargs = tree_map_only(ByHand, unwrap, (args, kwargs))
        out = cls.compute(func, plain_args, plain_kwargs, args)
        wrapped = tree_map_only(torch.Tensor, lambda each: cls(each, tags[0]), out)
        return return_and_correct_aliasing(func, args, kwargs, wrapped)

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        """``func`` on plain operands; ``wrapped`` are the positional ones as they came."""
        return func(*args, **kwargs)
