"""Refuses what int8 with a scale can't stand for, and names the argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import GradientCutError, InnerTensorError, LaminaError, LayoutError
from ..core.private import TRACERS, is_tracing
from .granularity import Granularity
from .numerics import FLOATING


class QuantizationError(LaminaError, ValueError):
    """Values, or a recipe, that int8 with a scale can't stand for."""


def check_detached(cls: type, values: Any) -> None:
    """``quantize`` ends the gradient: under ``no_grad`` that is what was asked for."""
    if isinstance(values, torch.Tensor) and values.requires_grad and torch.is_grad_enabled():
        raise GradientCutError(cls, "values", values)


def check_values(cls: type, values: Any) -> None:
    """Values to quantize: a strided floating tensor."""
    if not isinstance(values, torch.Tensor):
        raise QuantizationError(
            f"{cls.__name__} quantizes a torch.Tensor, got {values!r}. Pass torch.as_tensor(values).float()."
        )
    if values.is_nested or values.layout is not torch.strided:
        raise LayoutError(cls, "values", torch.jagged if values.is_nested else values.layout)
    if values.dtype not in FLOATING:
        raise _not_floating("the dtype of the values", values.dtype)


def check_recipe(granularity: Any, logical_dtype: Any) -> None:
    if not isinstance(granularity, Granularity):
        raise QuantizationError(
            f"granularity = {granularity!r} does not say which values share a scale. Pass an instance: PerRow()."
        )
    if logical_dtype not in FLOATING:
        raise _not_floating("logical_dtype", logical_dtype)


def check_same_shape(values: torch.Tensor, shape: torch.Size) -> None:
    if values.shape != shape:
        raise QuantizationError(
            f"requantize takes values of the tensor's own shape {tuple(shape)}, got {tuple(values.shape)}. Use "
            "quantize for values of another shape."
        )


def check_finite(values: torch.Tensor, scale: torch.Tensor) -> None:
    """All rows got a scale. Reads it, so not while torch traces, nor where there is no data."""
    if is_tracing() or scale.is_meta or isinstance(scale, TRACERS) or bool(scale.isfinite().all()):
        return
    nan, infinite = int(values.isnan().sum()), int(values.isinf().sum())
    raise QuantizationError(
        f"values of shape {tuple(values.shape)} hold {nan} NaN, {infinite} infinite elements"
        + ("" if nan or infinite else ", and some too large for a float32 scale")
        + ": their rows have no scale. Clean them first, e.g. torch.nan_to_num(values)."
    )


def check_inner(cls: type, qdata: torch.Tensor, scale: torch.Tensor) -> None:
    """What the constructor was given fits together."""
    if qdata.dtype is not torch.int8:
        raise InnerTensorError(
            f"{cls.__name__}: qdata is {qdata.dtype}, it has to be torch.int8; quantize(values) makes it"
        )
    if scale.dtype is not torch.float32:
        raise InnerTensorError(f"{cls.__name__}: scale is {scale.dtype}, it has to be torch.float32")
    if scale.device != qdata.device:
        raise InnerTensorError(f"{cls.__name__}: scale is on {scale.device}, qdata on {qdata.device}: move one")
    if not _broadcasts(scale.shape, qdata.shape):
        raise InnerTensorError(
            f"{cls.__name__}: scale has shape {tuple(scale.shape)} for qdata of {tuple(qdata.shape)}; it needs the "
            "same rank, and in each dim the same size or 1"
        )


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    return len(shape) == len(full) and all(size in (1, whole) for size, whole in zip(shape, full, strict=True))


def _not_floating(what: str, dtype: Any) -> QuantizationError:
    choices = ", ".join(str(d).removeprefix("torch.") for d in FLOATING)
    return QuantizationError(f"{what} is {dtype}; int8 with a scale stands for {choices}. Convert to one of them.")
