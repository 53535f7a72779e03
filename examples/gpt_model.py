"""A GPT on characters, and the text that it reads: Python's own help topics. `char_gpt.py` trains it.

Run it with `python examples/gpt_model.py` to see the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONTEXT, HEADS, BLOCKS, BATCH = 64, 4, 2, 16


class Text:
    """Help topics as character codes. Every tenth piece of 4096 characters is held out from training."""

    def __init__(self) -> None:
        text = "\n\n".join(topics[name] for name in sorted(topics))
        self.characters = sorted(set(text))
        code = {character: number for number, character in enumerate(self.characters)}
        pieces = torch.tensor([code[character] for character in text]).split(4096)
        self.held_out = torch.cat(pieces[::10])
        self.train = torch.cat([piece for number, piece in enumerate(pieces) if number % 10])

    def batches(self, source: Tensor, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """``count`` batches of windows of CONTEXT characters, and of those that follow each."""
        random = torch.Generator().manual_seed(seed)
        for _ in range(count):
            starts = torch.randint(len(source) - CONTEXT, (BATCH, 1), generator=random)
            windows = source[starts + torch.arange(CONTEXT + 1)]
            yield windows[:, :-1], windows[:, 1:]

    def decode(self, codes: Tensor) -> str:
        """Characters of a row of codes."""
        return "".join(self.characters[code] for code in codes.tolist())


class Block(nn.Module):
    """Attention to what came before, then two linear layers; each adds to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From and to (batch, characters, width)."""
        heads = self.attend(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.narrow(F.gelu(self.widen(self.norm2(x))))
        return x + added


class CharGPT(nn.Module):
    """Scores of the next character, at each place of a window."""

    def __init__(self, characters: int, width: int = 128) -> None:
        super().__init__()
        self.width = width
        self.character, self.place = nn.Embedding(characters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        for embedding in (self.character, self.place):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, codes: Tensor) -> Tensor:
        """From (batch, characters) to (batch, characters, scores)."""
        x = self.character(codes) + self.place.weight[: codes.shape[1]]
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores


def loss_of(model: Callable[[Tensor], Tensor], codes: Tensor, following: Tensor) -> Tensor:
    """Mean cross entropy, in nats a character."""
    return F.cross_entropy(model(codes).flatten(0, 1), following.flatten())


@torch.no_grad()
def generate(model: Callable[[Tensor], Tensor], codes: Tensor, count: int) -> Tensor:
    """``count`` characters after the CONTEXT that ``codes`` hold, drawn with the same luck each time."""
    luck = torch.Generator().manual_seed(0)
    for _ in range(count):
        chances = model(codes[-CONTEXT:].unsqueeze(0))[0, -1].softmax(-1)
        codes = torch.cat([codes, chances.multinomial(1, generator=luck)])
    return codes[-count:]


if __name__ == "__main__":
    text = Text()
    print(f"{len(text.train):,} characters to train on, {len(text.held_out):,} held out, {len(text.characters)} kinds")
    print(f"{sum(p.numel() for p in CharGPT(len(text.characters)).parameters()):,} parameters, of random values")
