"""Broken in one dtype and one way of calling an operator: each check of samples has its class."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16)
# What the comparison itself calls.
SPARED = {"detach", "requires_grad_"}


class Spoiled(torch.Tensor):
    """A wrapper as one writes it by hand, with a handler above the op for the tensors of one dtype."""

    inner: torch.Tensor
    dtype_of_defect: torch.dtype = torch.float32

    @staticmethod
    def __new__(cls: Any, inner: torch.Tensor) -> Any:
        shell = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype
        )
        shell.inner = inner
        return shell

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner_args, inner_kwargs = tree_map_only(Spoiled, lambda shell: shell.inner, (args, kwargs or {}))
        result = tree_map_only(torch.Tensor, cls, func(*inner_args, **inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs or {}, result)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            name = getattr(func, "__name__", "")
            if name in SPARED or name.startswith("__"):
                return func(*args, **(kwargs or {}))
            return cls.run(func, name, args, kwargs or {})

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:  # noqa: ARG003
        return func(*args, **kwargs)

    @classmethod
    def off(cls, value: Any) -> Any:
        """Every tensor of the dtype with other values."""

        def one(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dtype is not cls.dtype_of_defect or tensor.layout is not torch.strided:
                return tensor
            return tensor.logical_not() if tensor.dtype is torch.bool else tensor + 1

        return tree_map_only(torch.Tensor, one, value)

    @classmethod
    def copied(cls, value: Any) -> Any:
        """A copy of every tensor of the dtype."""
        return tree_map_only(torch.Tensor, lambda t: t.clone() if t.dtype is cls.dtype_of_defect else t, value)


class WrongFunction(Spoiled):
    """Functions of torch give other values; methods do not."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = super().run(func, name, args, kwargs)
        return result if type(func).__name__ == "method_descriptor" or "out" in kwargs else cls.off(result)


class WrongMethod(Spoiled):
    """Methods give other values; functions of torch, and methods that write, do not."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = super().run(func, name, args, kwargs)
        pure = type(func).__name__ == "method_descriptor" and not name.endswith("_")
        return cls.off(result) if pure else result


class LostWrite(Spoiled):
    """A method that writes gets a copy."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        return super().run(func, name, cls.copied(args) if name.endswith("_") else args, kwargs)


class LostOut(Spoiled):
    """``out=`` gets a copy."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs = {**kwargs, "out": cls.copied(kwargs["out"])}
        return super().run(func, name, args, kwargs)


class OtherError(Spoiled):
    """A wrong call raises an error of its own making."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().run(func, name, args, kwargs)
        except Exception as error:
            raise KeyError(name) from error


WAYS = {"function": WrongFunction, "method": WrongMethod, "inplace": LostWrite, "out": LostOut}


def broken(way: str, dtype: torch.dtype) -> tuple[type[torch.Tensor], Any]:
    cls: Any = type(f"{WAYS[way].__name__}Of{str(dtype)[6:].title()}", (WAYS[way],), {"__module__": __name__})
    cls.dtype_of_defect = dtype
    return cls, cls


BROKEN = {f"samples_{str(dtype)[6:]}_{way}": broken(way, dtype) for dtype in DTYPES for way in WAYS}
BROKEN["samples_errors"] = (OtherError, OtherError)
