"""A softmax over rows as an operator of one's own, with a Triton kernel where there is a GPU and Triton.

Run it: python examples/softmax_operator.py

One decorator declares the operator and its CPU kernel; kernels of other devices, the fake kernel and the derivative
are registered beside it. Which kernel a tensor gets is the dispatcher's choice, by its keys.
"""

# ruff: noqa: ARG001 - signatures are those that torch calls

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from lamina import LoggingTensor
from lamina.modes import DispatcherTrace, explain_table

NAME = "lamina_examples::row_softmax"
HAS_TRITON = torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


@torch.library.custom_op(NAME, mutates_args=(), device_types="cpu")
def row_softmax(x: Tensor) -> Tensor:
    """Softmax over dim 1 of a matrix; the largest value is taken off first, so that no exponential overflows."""
    exponentials = (x - x.amax(1, keepdim=True)).exp()
    return exponentials / exponentials.sum(1, keepdim=True)


@row_softmax.register_fake
def fake_softmax(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def setup(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def backward(ctx: Any, grad: Tensor) -> Tensor:
    """dx = y (g - sum(g y)), since dy_i/dx_j = y_i (delta_ij - y_j)."""
    (y,) = ctx.saved_tensors
    return y * (grad - (grad * y).sum(1, keepdim=True))


row_softmax.register_autograd(backward, setup_context=setup)

if HAS_TRITON:
    import triton
    import triton.language as tl

    @triton.jit
    def softmax_kernel(x, y, columns, stride, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803 - Triton's own language
        row = tl.program_id(0) * stride
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
        exponentials = tl.exp(values - tl.max(values, axis=0))
        tl.store(y + row + at, exponentials / tl.sum(exponentials, axis=0), mask=at < columns)

    @row_softmax.register_kernel("cuda")
    def triton_softmax(x: Tensor) -> Tensor:
        """A program for each row, which it holds in registers."""
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[1]
        softmax_kernel[(x.shape[0],)](x, y, columns, x.stride(0), BLOCK=triton.next_power_of_2(columns))
        return y


def check(device: str) -> None:
    """Equal to torch's softmax, with its derivative, and through a wrapper."""
    x = torch.randn(5, 33, device=device, requires_grad=True)
    torch.testing.assert_close(row_softmax(x), x.softmax(1))
    doubles = torch.randn(3, 4, device=device, dtype=torch.float64, requires_grad=True)
    print(f"{device}: equal to softmax; gradcheck", torch.autograd.gradcheck(row_softmax, doubles))
    with DispatcherTrace() as trace:
        row_softmax(LoggingTensor(x.detach()))
    print(*(each for each in map(str, trace.decisions) if "row_softmax" in each), sep="\n")


if __name__ == "__main__":
    table = explain_table(NAME)
    print("CPU:", table["CPU"].kernel.value, " CUDA:", table["CUDA"].kernel.value)
    print("opcheck:", torch.library.opcheck(row_softmax, (torch.randn(3, 4, requires_grad=True),)))
    check("cpu")
    if HAS_TRITON:
        check("cuda")
    else:
        print("no GPU with Triton here: the CUDA kernel is not registered")
