"""Refuses what int8 with a scale can't stand for, and names the argument."""

from __future__ import annotations

from typing import Any

import torch

from ..core.errors import GradientCutError, InnerTensorError, LayoutError
from ..core.fields import has_values
from .errors import QuantizationError
from .granularity import Granularity, PerGroup
from .numerics import FLOATING
from .operator import ACTIVATIONS
from .rounding import ROUNDINGS


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


def check_recipe(granularity: Any, logical_dtype: Any, rounding: Any, activation: Any) -> None:
    """The context of an instance: each value is one of those there are."""
    if not isinstance(granularity, Granularity):
        raise QuantizationError(
            f"granularity = {granularity!r} does not say which values share a scale. Pass an instance: PerTensor(), "
            f"PerRow(), {PerGroup(32)} or PerBlock(shape)."
        )
    if logical_dtype not in FLOATING:
        raise _not_floating("logical_dtype", logical_dtype)
    for name, value, choices in (("rounding", rounding, ROUNDINGS), ("activation", activation, ACTIVATIONS)):
        if value not in choices:
            raise QuantizationError(f"{name} = {value!r} is none of {', '.join(map(repr, choices))}.")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise QuantizationError(f"{name} = {value!r} is neither True nor False.")


def check_same_shape(values: torch.Tensor, shape: torch.Size) -> None:
    if values.shape != shape:
        raise QuantizationError(
            f"requantize takes values of the tensor's own shape {tuple(shape)}, got {tuple(values.shape)}. Use "
            "quantize for values of another shape."
        )


def check_finite(values: torch.Tensor, scale: torch.Tensor) -> None:
    """All rows got a scale. Reads it, so not while torch traces, nor where there is no data."""
    if not has_values(scale) or bool(scale.isfinite().all()):
        return
    nan, infinite = int(values.isnan().sum()), int(values.isinf().sum())
    raise QuantizationError(
        f"values of shape {tuple(values.shape)} hold {nan} NaN, {infinite} infinite elements"
        + ("" if nan or infinite else ", and a range too large for a float32 scale")
        + ": their blocks have no scale. Clean them first, e.g. torch.nan_to_num(values)."
    )


def check_inner(
    cls: type, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, granularity: Granularity
) -> None:
    """What the constructor was given fits together."""
    named = {"qdata": (qdata, torch.int8), "scale": (scale, torch.float32), "zero_point": (zero_point, torch.int8)}
    for name, (tensor, dtype) in named.items():
        if tensor is None:
            continue
        if tensor.dtype is not dtype:
            hint = "; quantize(values) makes it" if name == "qdata" else ""
            raise InnerTensorError(f"{cls.__name__}: {name} is {tensor.dtype}, it has to be {dtype}{hint}")
        if tensor.device != qdata.device:
            raise InnerTensorError(f"{cls.__name__}: {name} is on {tensor.device}, qdata on {qdata.device}: move one")
        shape = qdata.shape if name == "qdata" else granularity.scale_shape(qdata.shape)
        if tensor.shape != torch.Size(shape):
            raise InnerTensorError(
                f"{cls.__name__}: {name} has shape {tuple(tensor.shape)}; for qdata of {tuple(qdata.shape)}, "
                f"{granularity} asks for {tuple(shape)}"
            )


def _not_floating(what: str, dtype: Any) -> QuantizationError:
    choices = ", ".join(str(d).removeprefix("torch.") for d in FLOATING)
    return QuantizationError(f"{what} is {dtype}; int8 with a scale stands for {choices}. Convert to one of them.")
