"""Wrappers as they are written without lamina, for a compiled step: naively, and by a hand that knows what is hot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from ..peers import HAND_WRITTEN
from ..subjects import Subject, attribute

NAIVE = "naive"
_make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
_share_storage: Callable[[Tensor, Tensor], None] = torch._functionalize_unsafe_set
Self = TypeVar("Self", bound="Naive")


class Naive(torch.Tensor):
    """One inner tensor, in the words of torch's own examples: every op over trees, aliasing corrected by torch."""

    elem: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[Naive], elem: Tensor) -> Naive:
        """Wrap one tensor."""
        return _make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
        )

    def __init__(self, elem: Tensor) -> None:
        self.elem = elem

    def __repr__(self) -> str:  # type: ignore[override]
        """Without values: torch prints traced ones, too."""
        return f"{type(self).__name__}({tuple(self.shape)})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """What torch.compile takes it apart by."""
        return ["elem"], None

    def _stable_hash_for_caching(self) -> str:
        """What AOTAutograd's cache knows it by."""
        return type(self).__qualname__

    @classmethod
    def __tensor_unflatten__(cls: type[Self], inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Self:
        """And puts it together by."""
        return cls(inner["elem"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run on the inner tensors and wrap."""
        plain_args, plain_kwargs = tree_map_only(cls, lambda each: each.elem, (args, kwargs or {}))
        out = tree_map_only(Tensor, cls, func(*plain_args, **plain_kwargs))
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


class ByHand(Naive):
    """The same, with what a compiled step does most by the shortest way: `detach`, and to be put together."""

    __slots__ = ("elem",)

    @staticmethod
    def __new__(cls: type[ByHand], elem: Tensor) -> ByHand:
        """Wrap one tensor."""
        return _make_wrapper_subclass(
            cls, elem.size(), elem.stride(), elem.storage_offset(), None, elem.dtype, elem.layout, elem.device
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Detach at once, all else as Naive does it."""
        if func is torch.ops.aten.detach.default:
            (base,) = args
            detached = cls(func(base.elem))
            _share_storage(detached, base)
            return detached
        return super().__torch_dispatch__(func, types, args, kwargs)


def load_peers() -> list[Subject]:
    """Both."""
    return [
        Subject(NAIVE, "this bench", Naive, attribute("elem")),
        Subject(HAND_WRITTEN, "this bench", ByHand, attribute("elem")),
    ]
