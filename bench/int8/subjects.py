"""The ways to multiply by a weight that are put on the bench: plain, and ScaledInt8Tensor in all its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import lamina

from .accuracy import ANY, EIGHT_BITS, FLOAT, SIXTEEN_BITS, Accuracy

PLAIN, PLAIN_BFLOAT16 = "plain", "plain bfloat16"
ACTIVATIONS = {"float": FLOAT, "int16": SIXTEEN_BITS, "int8": EIGHT_BITS, "auto": ANY}
# Each with whether the weight is packed. Products of decoded values gain nothing from the layout, and refuse it.
OURS = [*((each, False) for each in ACTIVATIONS), *((each, True) for each in ACTIVATIONS if each != "float")]


def same(activations: Tensor) -> Tensor:
    """The activations as they are."""
    return activations


@dataclass(frozen=True)
class Subject:
    """One way to multiply: `build` makes a module of a weight, once; its forward is what is timed.

    `prepare` is done to the activations before the clock starts. A floor has no `accuracy`: it does only a part of the
    work, and is not compiled.
    """

    name: str
    origin: str
    build: Callable[[Tensor], nn.Module]
    accuracy: Accuracy | None
    prepare: Callable[[Tensor], Tensor] = same

    @property
    def is_floor(self) -> bool:
        """Whether it does only a part of the work."""
        return self.accuracy is None


def linear(weight: Tensor) -> nn.Linear:
    """A frozen linear layer without bias around this very weight."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def dequantized(module: nn.Module) -> Tensor:
    """The values that the weight of a module stands for."""
    weight = module.weight
    if not isinstance(weight, Tensor):
        raise TypeError(f"the weight of a {type(module).__name__} is no tensor but a {type(weight).__name__}")
    values: Tensor = weight.dequantize() if is_traceable_wrapper_subclass(weight) else weight.detach()
    return values


def ours(activation: str, *, packed: bool = False) -> str:
    """The name of one of lamina's subjects."""
    return f"lamina {activation}{' packed' if packed else ''}"


def weight_bytes(module: nn.Module) -> int:
    """The bytes that a module's parameters and buffers hold, whatever they are wrapped in."""
    return sum(leaf.nbytes for tensor in module.state_dict(keep_vars=True).values() for leaf in _leaves(tensor))


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _leaves(getattr(tensor, name))
    else:
        yield tensor


def _quantize(activation: str, *, packed: bool) -> Callable[[Tensor], nn.Module]:
    def build(weight: Tensor) -> nn.Module:
        quantized = lamina.ScaledInt8Tensor.quantize(weight, activation=activation)
        return linear(quantized.pack() if packed else quantized)

    return build


def load_plain(dtype: torch.dtype) -> list[Subject]:
    """Plain linear in the dtype of the problem, and in bfloat16 where that is another."""
    origin = f"torch {torch.__version__}"
    plain = Subject(PLAIN, origin, linear, FLOAT)
    if dtype is torch.bfloat16:
        return [plain]
    half = Subject(PLAIN_BFLOAT16, origin, lambda weight: linear(weight.bfloat16()), FLOAT, prepare=Tensor.bfloat16)
    return [plain, half]


def load_ours() -> list[Subject]:
    """ScaledInt8Tensor with each kind of activations, as it is and packed."""
    origin = f"lamina {lamina.__version__}"
    return [
        Subject(ours(activation, packed=packed), origin, _quantize(activation, packed=packed), ACTIVATIONS[activation])
        for activation, packed in OURS
    ]
