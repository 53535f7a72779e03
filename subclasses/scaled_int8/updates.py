"""In-place element-wise ops on large tensors: some rows at a time, so that no float copy of the whole is ever made.

That is what an optimizer does to a weight: decode, update, requantize. In pieces that stay in the processor's cache it
is several times faster than on the whole, where fresh memory costs more than the arithmetic. Values are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import torch

from ..core.private import OpOverload, call_of, is_alias, is_tracing
from ..core.schema import Kind, facts_of
from .numerics import Quantized, dequantized, requantize_
from .tensor import ScaledInt8Tensor

PIECE = 2**18  # elements decoded at a time: 1 MiB of float32


@ScaledInt8Tensor.implements(Kind.INPLACE)
def update(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In pieces where rows have scales of their own. Whatever else is written in place decodes as a whole."""
    facts, self = facts_of(op), args[0]
    elementwise = facts.flat_write and facts.elementwise_write
    if not elementwise or not isinstance(self, ScaledInt8Tensor) or not _has_pieces(self, args[1:]):
        return ScaledInt8Tensor.super_rule(op)(*args, **kwargs)
    _update(self, call_of(op), args[1:], kwargs)
    return self


def _has_pieces(self: Any, operands: tuple[Any, ...]) -> bool:
    if self.partial or self.numel() < 2 * PIECE or self.blocks[0] != 1 or self.stride(0) == 0 or is_tracing():
        return False
    inner = [t for t in (self.qdata, self.scale, self.zero_point) if t is not None]
    others = [t for t in operands if isinstance(t, torch.Tensor)]
    plain = all(type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided for t in (*inner, *others))
    if not plain or not all(_fits(t, self) for t in others):
        return False
    return not any(is_alias(a, b) for a in inner for b in others)  # a piece would see what others wrote


def _fits(operand: torch.Tensor, self: torch.Tensor) -> bool:
    """Whether it broadcasts to the shape of ``self``: another one might fit a piece, or all but the last."""
    sizes = zip(reversed(operand.shape), reversed(self.shape), strict=False)
    return operand.dim() <= self.dim() and all(size in (1, wanted) for size, wanted in sizes)


def _update(self: Any, call: Callable[..., Any], operands: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    rows = max(1, PIECE * self.shape[0] // self.numel())
    zero_points = repeat(None) if self.zero_point is None else self.zero_point.split(rows)
    inner = self.qdata.split(rows), self.scale.split(rows), zero_points
    given = (_in_step(self, operand, rows) for operand in operands)
    for qdata, scale, zero_point, *rest in zip(*inner, *given, strict=False):
        values = dequantized(qdata, scale, zero_point, self.blocks, self.dtype)
        call(values, *rest, **kwargs)
        requantize_(Quantized(qdata, scale, zero_point), values, self.blocks, self.rounding)


def _in_step(self: Any, operand: Any, rows: int) -> Iterable[Any]:
    """The parts of an operand that meet the parts of ``self``; one that is broadcast along dim 0 meets each."""
    if isinstance(operand, torch.Tensor) and operand.dim() == self.dim() and operand.shape[0] == self.shape[0]:
        pieces: Iterable[Any] = operand.split(rows)
        return pieces
    return repeat(operand)
