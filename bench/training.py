"""One training step of a model: loss, backward, update; eager, or compiled in two parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class TrainingStep:
    """Called with inputs and targets, trains the model on them once and returns the loss.

    With a backend, the model and its loss are compiled as one graph, and the optimizer apart (or not: `updates`):
    torch's Optimizer.step breaks the graph by itself.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        backend: Callable[..., Any] | None = None,
        *,
        updates: bool = True,
    ) -> None:
        self.optimizer = optimizer

        def of_batch(inputs: Tensor, targets: Tensor) -> Tensor:
            return loss(model(inputs), targets)

        self.written: Callable[[Tensor, Tensor], Tensor] = of_batch
        """The function that is compiled, as it is written."""
        self.loss = self.written
        self._update: Callable[[], object] = optimizer.step
        if backend is not None:
            self.loss = torch.compile(of_batch, backend=backend, fullgraph=True)
            if updates:
                self._update = torch.compile(optimizer.step, backend=backend)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Train on one batch."""
        loss = self.loss(inputs, targets)
        loss.backward()
        self._update()
        self.optimizer.zero_grad()
        return loss


class WholeStep:
    """The same compiled as one function, the backward in it. Call it in the scope of `traced_backward`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        backend: Callable[..., Any],
    ) -> None:
        def step(inputs: Tensor, targets: Tensor) -> Tensor:
            found = loss(model(inputs), targets)
            found.backward()
            found = found.detach()  # torch.compile hands out nothing whose graph the backward has used up
            optimizer.step()  # breaks the graph
            optimizer.zero_grad()
            return found

        self.written: Callable[[Tensor, Tensor], Tensor] = step
        """The function that is compiled, as it is written."""
        self._step: Callable[[Tensor, Tensor], Tensor] = torch.compile(step, backend=backend)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Train on one batch."""
        return self._step(inputs, targets)
