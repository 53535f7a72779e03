"""An operator of one's own: what each registration adds to its dispatch table, and what wrapper types do with it.

Run it: python examples/custom_operator.py

``scaled_gelu(x, factor)`` is ``gelu(x * factor)``. It gets a kernel, a fake kernel, a derivative and a rule for vmap,
one after the other, and the slots that fill up are printed.
"""

# ruff: noqa: ARG001 - signatures are those that torch calls

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.modes import DispatchLog, explain_table

NAME = "lamina_examples::scaled_gelu"
LIBRARY = torch.library.Library("lamina_examples", "DEF")
SHOWN = ("CPU", "CUDA", "Meta", "AutogradCPU", "FuncTorchBatched")


def kernel(x: Tensor, factor: float) -> Tensor:
    return F.gelu(x * factor)


def fake(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


def setup(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    x, ctx.factor = inputs
    ctx.save_for_backward(x)


def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """d gelu(u) / du = Phi(u) + u phi(u), with the normal distribution and its density."""
    (x,) = ctx.saved_tensors
    u = x * ctx.factor
    density = torch.exp(-u * u / 2) / (2 * torch.pi) ** 0.5
    return grad * ctx.factor * (torch.special.ndtr(u) + u * density), None


def batched(info: Any, in_dims: tuple[int | None, None], x: Tensor, factor: float) -> tuple[Tensor, int | None]:
    return torch.ops.lamina_examples.scaled_gelu(x, factor), in_dims[0]


def slots() -> list[str]:
    """What the slots hold that change here."""
    table = explain_table(NAME)
    return [f"{key}: {table[key].kernel.value}" for key in SHOWN]


def registrations() -> None:
    """Print the table after each of them."""
    LIBRARY.define("scaled_gelu(Tensor x, float factor) -> Tensor")
    print("declared:      ", *slots(), sep="\n    ")
    LIBRARY.impl("scaled_gelu", kernel, "CPU")
    print("CPU kernel:    ", *slots(), sep="\n    ")
    torch.library.register_fake(NAME, fake, lib=LIBRARY)
    print("fake kernel:   ", *slots(), sep="\n    ")
    torch.library.register_autograd(NAME, backward, setup_context=setup, lib=LIBRARY)
    print("derivative:    ", *slots(), sep="\n    ")
    torch.library.register_vmap(NAME, batched, lib=LIBRARY)
    print("rule for vmap: ", *slots(), sep="\n    ")


if __name__ == "__main__":
    registrations()
    scaled_gelu = torch.ops.lamina_examples.scaled_gelu.default
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    print("opcheck: ", torch.library.opcheck(scaled_gelu, (x, 0.5)))
    print("gradcheck:", torch.autograd.gradcheck(lambda x: scaled_gelu(x, 0.5), x))
    print("vmap:     ", torch.equal(torch.vmap(lambda row: scaled_gelu(row, 0.5))(x), scaled_gelu(x, 0.5)))

    @LoggingTensor.implements(scaled_gelu)
    def logged(op: Any, x: LoggingTensor, factor: float) -> LoggingTensor:
        """As the fallback would; it says so."""
        print("the rule of LoggingTensor ran")
        return LoggingTensor(op(x.elem, factor))

    @ScaledInt8Tensor.implements(scaled_gelu)
    def quantized(op: Any, x: ScaledInt8Tensor, factor: float) -> Tensor:
        """The factor goes into the scale."""
        return F.gelu(ScaledInt8Tensor(x.qdata, x.scale * factor).dequantize())

    with DispatchLog() as log:
        logged_result = scaled_gelu(LoggingTensor(x.detach()), 0.5)
        quantized_result = scaled_gelu(ScaledInt8Tensor.quantize(x.detach().float()), 0.5)
    print("seen:", *(record for record in log.records if "scaled_gelu" in record.op), sep="\n    ")
    print("results:", type(logged_result).__name__, type(quantized_result).__name__)
