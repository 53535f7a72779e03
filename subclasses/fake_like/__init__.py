"""FakeLikeTensor: metadata without data."""

from .cache import Info, Replay, Replays, StaleReplayError, replays
from .tensor import FakeLikeTensor, fake_of

__all__ = ["FakeLikeTensor", "Info", "Replay", "Replays", "StaleReplayError", "fake_of", "replays"]
