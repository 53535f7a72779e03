"""What FakeLikeMode refuses."""

from __future__ import annotations

import torch

from ...subclasses.core.errors import LaminaError


class RealTensorError(LaminaError, RuntimeError):
    """A tensor with data came into FakeLikeMode."""

    def __init__(self, func: object, tensor: torch.Tensor) -> None:
        self.func, self.shape = func, tuple(tensor.shape)
        super().__init__(
            f"{func} inside FakeLikeMode got a real tensor, {tensor.dtype} of shape {tuple(tensor.shape)} on "
            f"{tensor.device}. Make it inside the mode; or turn it into a FakeLikeTensor: "
            "lamina.fake_like(module) for a model, lamina.FakeLikeTensor.from_tensor(tensor) for a tensor, "
            "FakeLikeMode(convert=True) for whatever comes in."
        )
