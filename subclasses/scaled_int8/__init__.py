"""int8 with a float32 scale, standing for a float tensor."""

from __future__ import annotations

from . import joins, packed, products, reshape, updates, views, writes  # which register their rules
from .errors import GridError, PackedError, PartialViewError, ProductError, QuantizationError
from .granularity import Granularity, PerBlock, PerGroup, PerRow, PerTensor
from .packed import PackedInt8Tensor
from .tensor import ScaledInt8Tensor

__all__ = [
    "Granularity",
    "GridError",
    "PackedError",
    "PackedInt8Tensor",
    "PartialViewError",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "ProductError",
    "QuantizationError",
    "ScaledInt8Tensor",
    "joins",
    "packed",
    "products",
    "reshape",
    "updates",
    "views",
    "writes",
]
