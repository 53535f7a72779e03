"""Calls an author's ``decode`` and ``encode``, and checks what comes back: a wrong one would be wrong values later."""

from __future__ import annotations

from typing import Any

import torch

from .errors import CodecError


def decoded(wrapper: Any) -> torch.Tensor:
    """``wrapper.decode()``.

    Raises:
        CodecError: it is no tensor of the shape and dtype that the wrapper says it has.
    """
    values = wrapper.decode()
    if not isinstance(values, torch.Tensor):
        raise CodecError(type(wrapper), "decode", f"returned a {type(values).__name__}, not a tensor")
    if values.shape != wrapper.shape or values.dtype != wrapper.dtype:
        got, said = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (values, wrapper))
        raise CodecError(type(wrapper), "decode", f"returned {got}, and the wrapper says {said}")
    return values


def encoded(cls: Any, values: torch.Tensor, context: dict[str, Any]) -> Any:
    """``cls.encode(values, **context)``.

    Raises:
        CodecError: it is no instance of ``cls``.
    """
    wrapper = cls.encode(values, **context)
    if type(wrapper) is not cls:
        raise CodecError(cls, "encode", f"returned a {type(wrapper).__name__}")
    return wrapper
