"""int8 with a float32 scale, standing for a float tensor."""

from __future__ import annotations

from . import products, structure  # which register their rules
from .checks import QuantizationError
from .granularity import Granularity, PerRow
from .tensor import ScaledInt8Tensor

__all__ = ["Granularity", "PerRow", "QuantizationError", "ScaledInt8Tensor", "products", "structure"]
