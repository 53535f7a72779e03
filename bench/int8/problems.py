"""The products that are timed: activations [rows, inputs] times a weight [outputs, inputs], transposed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..cases import random_tensors

ROWS = (1, 4, 16, 64, 256)
SHAPES = ((2048, 2048), (8192, 2048), (2048, 8192), (1000, 1003))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@lru_cache(maxsize=1)  # all subjects of a layer ask for it, in each mode
def _weight(outputs: int, inputs: int, dtype: torch.dtype) -> Tensor:
    (values,) = random_tensors((outputs, inputs))
    return values.mul(inputs**-0.5).to(dtype)


@dataclass(frozen=True)
class Layer:
    """The weight of a linear layer, and the dtype of it and its activations."""

    outputs: int
    inputs: int
    dtype: str

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.dtype} {self.outputs}x{self.inputs}"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype itself."""
        return DTYPES[self.dtype]

    @property
    def float_bytes(self) -> int:
        """The bytes of the weight in float32."""
        return 4 * self.outputs * self.inputs

    def weight(self) -> Tensor:
        """Normal values, scaled so that products of normal activations are about one. Not to be written to."""
        return _weight(self.outputs, self.inputs, self.torch_dtype)

    def activations(self, rows: int) -> Tensor:
        """Normal values, of another seed than those of the weight."""
        (values,) = random_tensors((rows, self.inputs), seed=1)
        return values.to(self.torch_dtype)


@dataclass(frozen=True)
class Problem(Layer):
    """One product: a layer and the number of rows that it is given."""

    rows: int

    @classmethod
    def of(cls, layer: Layer, rows: int) -> Problem:
        """The layer, given so many rows."""
        return cls(layer.outputs, layer.inputs, layer.dtype, rows)

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.layer.name} M={self.rows}"

    @property
    def layer(self) -> Layer:
        """The layer alone."""
        return Layer(self.outputs, self.inputs, self.dtype)
