"""Rules for matrix products with one int8 operand: on the payload, by the operator ``lamina::int8_mm``; small weights
with float activations are decoded instead.

They are the only way in: ``linear``, ``matmul`` and their backwards come down to these operators, whichever function
they were called by, with the weight transposed lazily.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.private import OpOverload
from .operator import int8_mm
from .packed import PackedInt8Tensor
from .tensor import ScaledInt8Tensor

aten = torch.ops.aten
# A weight so small is decoded as a whole by any kernel: without the operator's call that is 30 us faster, and compilers
# see what is computed. In other dtypes the operator is the more accurate: it rounds once.
SMALL = 2**19
_EXACT = (torch.float32, torch.float64)


@ScaledInt8Tensor.implements(aten.mm.default)
@PackedInt8Tensor.implements(aten.mm.default)
def mm(op: OpOverload, self: Any, mat2: Any) -> Any:
    if not _has_rule(self, mat2):
        return _owner(self, mat2).super_rule(op)(self, mat2)
    return _product(self, mat2)


@ScaledInt8Tensor.implements(aten.addmm.default)
@PackedInt8Tensor.implements(aten.addmm.default)
def addmm(op: OpOverload, self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not _has_rule(mat1, mat2) or self.dtype is not mat1.dtype:
        return _owner(self, mat1, mat2).super_rule(op)(self, mat1, mat2, beta=beta, alpha=alpha)
    product = _product(mat1, mat2)
    if beta == 0:  # by definition: not even a NaN of the input shows
        return product.mul_(alpha)
    bias = self.decode() if _is_int8(self) else self
    scaled = product if alpha == 1 else product.mul_(alpha)
    return scaled.add_(bias) if beta == 1 else scaled.add_(bias, alpha=beta)


@ScaledInt8Tensor.implements(aten.mv.default)
@PackedInt8Tensor.implements(aten.mv.default)
def mv(op: OpOverload, self: Any, vec: Any) -> Any:
    if not _has_rule(self, vec):
        return _owner(self, vec).super_rule(op)(self, vec)
    return _product(vec.unsqueeze(0), self.t()).squeeze(0)


def _is_int8(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, (ScaledInt8Tensor, PackedInt8Tensor))


def _owner(*tensors: torch.Tensor) -> Any:
    """The class whose inherited rule answers."""
    first = next(t for t in tensors if _is_int8(t))
    return PackedInt8Tensor if isinstance(first, PackedInt8Tensor) else ScaledInt8Tensor


def _has_rule(a: torch.Tensor, b: torch.Tensor) -> bool:
    """One int8 operand, one dtype, shapes that fit: of others the op on decoded values says what is wrong."""
    return (
        _is_int8(a) is not _is_int8(b)
        and a.dtype is b.dtype
        and a.layout is b.layout is torch.strided
        and a.dim() == 2
        and b.dim() > 0
        and a.shape[1] == b.shape[0]
        and a.device == b.device
    )


def _product(a: Any, b: Any) -> torch.Tensor:
    """``a @ b`` for matrices of which one is int8."""
    if _is_int8(a):
        return _product(b.t(), a.t()).t().contiguous()
    if b.activation == "float" and a.dtype in _EXACT and b.numel() <= SMALL:
        return torch.mm(a, b.decode())
    qdata, scale, zero_point = b.matrix()
    return int8_mm(a, qdata, scale, zero_point, b.activation)
