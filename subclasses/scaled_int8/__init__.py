"""int8 with a float32 scale, standing for a float tensor."""

from __future__ import annotations

from . import joins, products, reshape, views, writes  # which register their rules
from .errors import GridError, PartialViewError, QuantizationError
from .granularity import Granularity, PerBlock, PerGroup, PerRow, PerTensor
from .tensor import ScaledInt8Tensor

__all__ = [
    "Granularity",
    "GridError",
    "PartialViewError",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "QuantizationError",
    "ScaledInt8Tensor",
    "joins",
    "products",
    "reshape",
    "views",
    "writes",
]
