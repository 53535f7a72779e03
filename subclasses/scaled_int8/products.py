"""Rules for matrix products with one int8 operand: on the payload, with the scale applied to the smaller side.

A scale that is shared along the contracted dim is a factor of each result column (or row): ``x @ (q s) = (x @ q) s``.
One that differs along it goes into the other operand first: ``x @ (s q) = (x s) @ q``. The first is what ``linear``
asks for, the second what its backward does. The unscaled product is up to 127 * K times the operand: activations within
that of the largest number of their dtype overflow, where the dequantized product might not.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.private import OpOverload
from .numerics import computing_dtype
from .tensor import ScaledInt8Tensor

aten = torch.ops.aten


@ScaledInt8Tensor.implements(aten.mm.default)
def mm(op: OpOverload, self: Any, mat2: Any) -> Any:
    if not _has_rule(self, mat2):
        return ScaledInt8Tensor.super_rule(op)(self, mat2)
    return _product(self, mat2)


@ScaledInt8Tensor.implements(aten.addmm.default)
def addmm(op: OpOverload, self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not _has_rule(mat1, mat2) or self.dtype is not mat1.dtype:
        return ScaledInt8Tensor.super_rule(op)(self, mat1, mat2, beta=beta, alpha=alpha)
    product = _product(mat1, mat2)
    if beta == 0:  # by definition: not even a NaN of the input shows
        return product * alpha
    bias = self.expand(product.shape)
    return torch.add(bias if beta == 1 else bias * beta, product, alpha=alpha)


@ScaledInt8Tensor.implements(aten.mv.default)
def mv(op: OpOverload, self: Any, vec: Any) -> Any:
    if not _has_rule(self, vec):
        return ScaledInt8Tensor.super_rule(op)(self, vec)
    return _product(self, vec.unsqueeze(1)).squeeze(1)


def _has_rule(a: torch.Tensor, b: torch.Tensor) -> bool:
    """One int8 operand, one dtype, shapes that can be right: of others the op on decoded values says what is wrong."""
    one_is_int8 = isinstance(a, ScaledInt8Tensor) is not isinstance(b, ScaledInt8Tensor)
    return one_is_int8 and a.dtype is b.dtype and a.dim() == 2 and b.dim() > 0


def _product(a: Any, b: Any) -> torch.Tensor:
    """``a @ b`` for matrices of which one is int8."""
    if isinstance(a, ScaledInt8Tensor):
        return _product(b.t(), a.t()).t()
    payload = b.qdata.to(_payload_dtype(a.dtype))
    scale = b.scale.to(computing_dtype(a.dtype))
    if scale.shape[0] == 1:
        product: torch.Tensor = torch.mm(a.to(payload.dtype), payload) * scale
    else:
        product = torch.mm((a * scale.t()).to(payload.dtype), payload)
    return product.to(a.dtype)


def _payload_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to multiply in. Unscaled sums, of up to 127 |x| each, overflow float16 from some 500 terms on."""
    return torch.float32 if dtype is torch.float16 else dtype
