"""One training step of a model: loss, backward, update; eager, or compiled in two parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class TrainingStep:
    """Called with inputs and targets, trains the model on them once and returns the loss.

    With a backend, the model and its loss are compiled as one graph, and the optimizer apart: torch's Optimizer.step
    breaks the graph by itself.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        backend: Callable[..., Any] | None = None,
    ) -> None:
        self.optimizer = optimizer

        def of_batch(inputs: Tensor, targets: Tensor) -> Tensor:
            return loss(model(inputs), targets)

        self._loss: Callable[[Tensor, Tensor], Tensor] = of_batch
        self._update: Callable[[], object] = optimizer.step
        if backend is not None:
            self._loss = torch.compile(of_batch, backend=backend, fullgraph=True)
            self._update = torch.compile(optimizer.step, backend=backend)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Train on one batch."""
        loss = self._loss(inputs, targets)
        loss.backward()
        self._update()
        self.optimizer.zero_grad()
        return loss
