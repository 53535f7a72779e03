"""Torch's own fake tensors: metadata without values. Their module is private; ``torch.export`` has no door to them."""

from __future__ import annotations

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
