"""The models that are trained: an MLP, a conv net and a GPT, each with as many weights to wrap as is asked for.

They are narrow, so that a step is mostly what each parameter costs. Every layer adds to its input, the less the more of
them there are: a deep stack trains as a shallow one does. The weights to wrap are those of `trunk`; all else is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cases import random_tensors

Loss = Callable[[Tensor, Tensor], Tensor]
IMAGE, TOKENS, VOCABULARY, HEADS = 8, 16, 32, 2
WEIGHTS_OF_A_BLOCK = 4
FEW = 8


@dataclass(frozen=True)
class Size:
    """How wide the layers are, and how many samples a batch has."""

    width: int = 16
    batch: int = 8


SMALL, LARGE = Size(), Size(width=1024, batch=256)


@dataclass(frozen=True)
class Task:
    """A model, what it is trained on, and its loss."""

    model: Trunked
    batch: tuple[Tensor, Tensor]
    loss: Loss


class Trunked(nn.Module):
    """A model whose weights to wrap are all in its trunk."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The trunk alone."""
        result: Tensor = self.trunk(x)
        return result


class Added(nn.Module):
    """A layer that adds the tanh of another's result to its input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """From and to any shape that the layer keeps."""
        return x + torch.tanh(self.layer(x))


class Block(nn.Module):
    """Attention to what came before, then two linear layers; each adds to its input. Four weights, no other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From and to (batch, tokens, width)."""
        heads = self.attend(_normalized(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.narrow(F.gelu(self.widen(_normalized(x))))
        return x + added


def _normalized(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


class GPT(Trunked):
    """Logits of the next token; embeddings and head are plain."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__([Block(width) for _ in range(blocks)])
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.zeros(TOKENS, width))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, tokens) to (batch, tokens, vocabulary)."""
        logits: Tensor = self.head(self.trunk(self.tokens(x) + self.positions))
        return logits


def _mlp(weights: int, size: Size) -> Task:
    layers: list[nn.Module] = [Added(nn.Linear(size.width, size.width, bias=False)) for _ in range(weights)]
    inputs, targets = random_tensors((size.batch, size.width), (size.batch, size.width))
    return Task(Trunked(layers), (inputs, targets), F.mse_loss)


def _conv_net(weights: int, size: Size) -> Task:
    layers: list[nn.Module] = [
        Added(nn.Conv2d(size.width, size.width, 3, padding=1, bias=False)) for _ in range(weights)
    ]
    inputs, targets = random_tensors(*[(size.batch, size.width, IMAGE, IMAGE)] * 2)
    return Task(Trunked(layers), (inputs, targets), F.mse_loss)


def _gpt(weights: int, size: Size) -> Task:
    if weights % WEIGHTS_OF_A_BLOCK:
        raise ValueError(f"a block of the GPT has {WEIGHTS_OF_A_BLOCK} weights: {weights} is no multiple of that.")
    text = torch.randint(VOCABULARY, (size.batch, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    return Task(GPT(weights // WEIGHTS_OF_A_BLOCK, size.width), (text[:, :-1], text[:, 1:]), _next_token_loss)


def _next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


MLP = "MLP"
MODELS: dict[str, Callable[[int, Size], Task]] = {MLP: _mlp, "conv net": _conv_net, "GPT": _gpt}


def make_task(model: str, weights: int, size: Size = SMALL) -> Task:
    """The same at every call; torch's global generator is left as it was.

    Raises:
        ValueError: the model can't have this number of weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = MODELS[model](weights, size)
    with torch.no_grad():
        for weight in task.model.trunk.parameters():
            weight.mul_(shrinkage(weights) ** 0.5)
    return task


def shrinkage(weights: int) -> float:
    """How much less each of many weights counts than each of few."""
    return min(1.0, FEW / weights)
