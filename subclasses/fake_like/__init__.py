"""FakeLikeTensor: metadata without data."""

from .cache import Info, Replay, Replays, StaleReplayError, replays
from .errors import NoKernelError, UndecidedError
from .tensor import FakeLikeTensor, fake_of

__all__ = [
    "FakeLikeTensor",
    "Info",
    "NoKernelError",
    "Replay",
    "Replays",
    "StaleReplayError",
    "UndecidedError",
    "fake_of",
    "replays",
]
