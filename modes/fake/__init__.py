"""FakeLikeMode: a scope in which tensors have metadata and a claimed device, and no data."""

from .conversion import fake_like
from .errors import RealTensorError
from .mode import FakeLikeMode

__all__ = ["FakeLikeMode", "RealTensorError", "fake_like"]
