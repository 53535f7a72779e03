"""Llama-like decoders to plan: RMSNorm, rotary positions, grouped queries, SwiGLU.

``llama_1b``, ``llama_8b`` and ``llama_70b`` have the sizes of the Llama 3 models; they make a model of torch's default
dtype. With real tensors they compute, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 128_256


@dataclass(frozen=True)
class Sizes:
    """Of a decoder. ``tied``: the head is the embedding's weight."""

    width: int
    layers: int
    heads: int
    key_heads: int
    hidden: int
    vocabulary: int = VOCABULARY
    tied: bool = False
    base: float = 500_000.0


class Attention(nn.Module):
    """Attention to what came before; several queries share a key and a value."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        head = sizes.width // sizes.heads
        self.heads, self.key_heads = sizes.heads, sizes.key_heads
        self.query = nn.Linear(sizes.width, sizes.heads * head, bias=False)
        self.key = nn.Linear(sizes.width, sizes.key_heads * head, bias=False)
        self.value = nn.Linear(sizes.width, sizes.key_heads * head, bias=False)
        self.out = nn.Linear(sizes.heads * head, sizes.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """From and to (batch, tokens, width)."""
        query = rotated(self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), cosine, sine)
        key = rotated(self.key(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2), cosine, sine)
        value = self.value(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


class Gated(nn.Module):
    """SwiGLU: two projections up, one of them a gate, and one down."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From and to (batch, tokens, width)."""
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """Attention, then the gated layers; each adds to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(sizes.width), nn.RMSNorm(sizes.width)
        self.attention, self.gated = Attention(sizes), Gated(sizes)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """From and to (batch, tokens, width)."""
        x = x + self.attention(self.norm1(x), cosine, sine)
        added: Tensor = self.gated(self.norm2(x))
        return x + added


class Decoder(nn.Module):
    """From tokens to the scores of the next."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.head = nn.RMSNorm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        if sizes.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """From (batch, tokens) to (batch, tokens, vocabulary)."""
        x = self.embedding(tokens)
        cosine, sine = angles(self.sizes, x)
        for block in self.blocks:
            x = block(x, cosine, sine)
        scores: Tensor = self.head(self.norm(x))
        return scores


def angles(sizes: Sizes, x: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions of ``x``, (tokens, head size), in its dtype."""
    half = sizes.width // sizes.heads // 2
    inverse = sizes.base ** -(torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.outer(torch.arange(x.shape[1], device=x.device, dtype=torch.float32), inverse).repeat(1, 2)
    return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads (batch, heads, tokens, head size), turned by their positions."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


def llama_1b() -> Decoder:
    """1.24 G parameters; the head is the embedding's weight."""
    return Decoder(Sizes(width=2048, layers=16, heads=32, key_heads=8, hidden=8192, tied=True))


def llama_8b() -> Decoder:
    """8.03 G parameters."""
    return Decoder(Sizes(width=4096, layers=32, heads=32, key_heads=8, hidden=14_336))


def llama_70b() -> Decoder:
    """70.6 G parameters."""
    return Decoder(Sizes(width=8192, layers=80, heads=64, key_heads=8, hidden=28_672))
