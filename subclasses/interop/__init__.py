"""Formats and tools of others: checkpoints of plain tensors."""

from .checkpoints import flatten_state_dict, unflatten_state_dict
from .errors import CheckpointError, MissingTensorsError
from .shards import split_state_dict

__all__ = [
    "CheckpointError",
    "MissingTensorsError",
    "flatten_state_dict",
    "split_state_dict",
    "unflatten_state_dict",
]
