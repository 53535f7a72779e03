"""The recipes that tests of int8 tensors in use run over, and models whose weights follow them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import lamina
from lamina import PerGroup, PerRow, PerTensor, ScaledInt8Tensor

RECIPES: dict[str, dict[str, Any]] = {
    "row": {"granularity": PerRow()},
    "group asymmetric": {"granularity": PerGroup(4), "symmetric": False},
    "tensor": {"granularity": PerTensor()},
    "row stochastic": {"granularity": PerRow(), "rounding": "stochastic"},
}


def quantized(values: torch.Tensor, recipe: str, **options: Any) -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(values.detach(), **{**RECIPES[recipe], **options})


def quantize_weights(module: nn.Module, recipe: str) -> Any:
    """Every parameter of two dims or more, in place."""
    return lamina.wrap_parameters(module, lambda p: quantized(p, recipe), where=lambda _n, _m, p: p.dim() > 1)


def decoded_copy(module: nn.Module) -> Any:
    """The same module with plain parameters of the same values."""
    return lamina.unwrap_parameters(copy.deepcopy(module))


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Detached and plain, through all layers."""
    tensor = tensor.detach()
    return values_of(tensor.to_plain()) if isinstance(tensor, lamina.WrapperTensor) else tensor


def addresses(tensor: Any) -> list[int]:
    return [leaf.data_ptr() for leaf in lamina.leaf_tensors(tensor)]


def recipe_of(tensor: Any) -> tuple[Any, ...]:
    names = ("granularity", "logical_dtype", "rounding", "activation", "partial")
    return (*(getattr(tensor, name) for name in names), tensor.zero_point is None)


def assert_same_tensor(a: Any, b: Any) -> None:
    """To the bit: class, recipe, payload, scale, zero point, geometry."""
    assert type(a) is type(b) is ScaledInt8Tensor
    assert recipe_of(a) == recipe_of(b)
    assert (a.shape, a.stride(), a.storage_offset(), a.dtype) == (b.shape, b.stride(), b.storage_offset(), b.dtype)
    for mine, other in zip(lamina.leaf_tensors(a), lamina.leaf_tensors(b), strict=True):
        assert torch.equal(mine, other)


def assert_same_gradients(module: nn.Module, reference: nn.Module) -> None:
    """Plain, in the dtype of the parameter, and close: sums of some hundred terms, in another order."""
    for (name, p), q in zip(module.named_parameters(), reference.parameters(), strict=True):
        assert p.grad is not None, name
        assert q.grad is not None, name
        assert type(p.grad) is torch.Tensor, name
        assert p.grad.dtype is p.dtype, name
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
