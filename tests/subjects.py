"""The classes that the tests of the core work on: one of each make, as small as they can be."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of schemas and hooks
import subprocess
import sys
import textwrap
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from lamina import Fallback, Gradients, OuterMetadata, WrapperTensor

TESTS = Path(__file__).resolve().parent
# Floating, complex, integer and bool dtypes: what a transparent class must not tell apart.
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.int8, torch.bool]
FLOATING = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128]
SHAPES = [(), (0,), (1,), (3,), (1, 4), (3, 4), (0, 4), (2, 3, 4)]


class Clear(WrapperTensor):
    """Transparent: one inner tensor, no context."""

    elem: torch.Tensor
    fallback = Fallback.UNWRAP


class Tagged(WrapperTensor):
    """Transparent, with context."""

    elem: torch.Tensor
    tag: int = 0
    label: str = "none"
    fallback = Fallback.UNWRAP


class Unruled(WrapperTensor):
    """Has no rule and no fallback: only the structural rules of the base class."""

    elem: torch.Tensor


class Doubled(WrapperTensor):
    """Stands for twice what it holds: an inner tensor that leaks as values shows at once."""

    elem: torch.Tensor
    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> Doubled:
        return cls(values / 2, **context)

    def decode(self) -> torch.Tensor:
        return self.elem * 2


class Granularity(Enum):
    ROW = "row"
    TENSOR = "tensor"


class Scaled(WrapperTensor):
    """Two inner tensors and a context; the logical dtype is not that of the payload."""

    payload: torch.Tensor
    scale: torch.Tensor
    granularity: Granularity = Granularity.ROW
    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    @classmethod
    def outer_metadata(cls, payload: torch.Tensor, scale: torch.Tensor, granularity: Granularity) -> OuterMetadata:
        return OuterMetadata(payload.size(), payload.stride(), payload.storage_offset(), scale.dtype, payload.device)

    @classmethod
    def encode(cls, values: torch.Tensor, granularity: Granularity = Granularity.ROW) -> Scaled:
        per_row = granularity is Granularity.ROW and values.dim() > 0
        largest = values.abs().amax(-1, keepdim=True) if per_row else values.abs().amax()
        scale = largest.clamp(min=1e-8) / 127
        return cls((values / scale).round().to(torch.int8), scale, granularity)

    def decode(self) -> torch.Tensor:
        return self.payload.to(self.scale.dtype) * self.scale


class Sum(WrapperTensor):
    """A run of inner tensors and an optional one; stands for their sum."""

    parts: tuple[torch.Tensor, ...]
    bias: torch.Tensor | None
    fallback = Fallback.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor) -> Sum:
        return cls((values / 2, values / 2))

    def decode(self) -> torch.Tensor:
        total = torch.stack(self.parts).sum(0)
        return total if self.bias is None else total + self.bias


def data_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values that every dtype represents exactly."""
    values = torch.randint(0, 2, shape) if dtype is torch.bool else torch.randint(-8, 8, shape)
    return (
        torch.complex(values.float(), values.flip(-1).float() if shape else values.float()).to(dtype)
        if (dtype.is_complex)
        else values.to(dtype)
    )


def nest(cls: Any, values: torch.Tensor, depth: int) -> torch.Tensor:
    for _ in range(depth):
        values = cls(values)
    return values


def peeled(value: Any) -> Any:
    """The innermost tensor of nested one-tensor wrappers."""
    while isinstance(value, (Clear, Tagged)):
        value = value.elem
    return value


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a process of its own, with the classes of this module in reach."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=TESTS,
    )
