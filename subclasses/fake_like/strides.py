"""How PyTorch's element-wise kernels lay out a result that is empty and to which operands were broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def strides_of_empty(shape: Sequence[int], operands: Sequence[torch.Tensor]) -> list[int]:
    """As TensorIterator computes them: dims in the order of the operands' strides, the fastest first; each strides over
    those before it, and over none where one of them is empty. Where nothing is broadcast, all count as contiguous; and
    so does what lies in the usual order."""
    if all(each.shape == tuple(shape) for each in operands):
        return _contiguous(shape)
    strides = [_broadcast(each, shape) for each in operands]
    order: list[int] = []
    for dim in reversed(range(len(shape))):
        place = len(order)
        for index in reversed(range(len(order))):
            faster = _compare(order[index], dim, shape, strides)
            if faster < 0:
                break
            if faster > 0:
                place = index
        order.insert(place, dim)
    if order == [*reversed(range(len(shape)))]:
        return _contiguous(shape)
    found, next_stride = [0] * len(shape), 1
    for dim in order:
        found[dim] = next_stride
        next_stride *= shape[dim]
    return found


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape))]


def _broadcast(operand: torch.Tensor, shape: Sequence[int]) -> list[int]:
    missing = len(shape) - operand.dim()
    given = zip(operand.shape, operand.stride(), shape[missing:], strict=True)
    return [0] * missing + [0 if size == 1 != wanted else stride for size, stride, wanted in given]


def _compare(one: int, other: int, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    """Positive: ``one`` is to come after ``other``; negative: before; 0: no operand says."""
    for stride in strides:
        if stride[one] and stride[other]:
            if stride[one] != stride[other]:
                return stride[one] - stride[other]
            if shape[one] > shape[other]:
                return 1
    return 0
