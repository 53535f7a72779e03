"""FakeLikeTensor: metadata without data."""

from .tensor import FakeLikeTensor, fake_of

__all__ = ["FakeLikeTensor", "fake_of"]
