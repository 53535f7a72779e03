"""Formats and tools of others: checkpoints of plain tensors, torchao."""

from .checkpoints import flatten_state_dict, unflatten_state_dict
from .errors import CheckpointError, MissingTensorsError
from .shards import split_state_dict
from .torchao import from_torchao, to_torchao
from .torchao_config import ScaledInt8Config

__all__ = [
    "CheckpointError",
    "MissingTensorsError",
    "ScaledInt8Config",
    "flatten_state_dict",
    "from_torchao",
    "split_state_dict",
    "to_torchao",
    "unflatten_state_dict",
]
