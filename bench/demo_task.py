"""What the demo trains: scikit-learn's bundled images of handwritten digits, and a small model for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BATCH = 64
HIDDEN = 128
CLASSES = 10
BRIGHTEST = 16  # the images' pixels are 0 to 16

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Digits:
    """Images as float32 [n, 64] in 0 to 1, labels as int64 [n]: three quarters to train with, the others to test."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def batches_per_epoch(self) -> int:
        """Full batches only: each step has the same shapes."""
        return len(self.train_labels) // BATCH

    def batches(self, epochs: int, seed: int) -> Iterator[Batch]:
        """Every epoch in a new order."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            order = torch.randperm(len(self.train_labels), generator=generator)
            for chosen in order[: self.batches_per_epoch * BATCH].split(BATCH):
                yield self.train_images[chosen], self.train_labels[chosen]


def load(seed: int) -> Digits:
    """The images, split at random with the same share of each digit on both sides. Nothing is downloaded."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=seed)
    train_images, test_images = (torch.tensor(part, dtype=torch.float32) / BRIGHTEST for part in parts[:2])
    train_labels, test_labels = (torch.tensor(part, dtype=torch.int64) for part in parts[2:])
    return Digits(train_images, train_labels, test_images, test_labels)


def make_model(seed: int) -> nn.Sequential:
    """Three linear layers; the same seed gives the same weights. Torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        )
