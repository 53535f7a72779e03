"""Nested values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def map_nested(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function`` over the leaves of nested tuples, lists, dicts and whatever else is registered with pytree."""
    return torch.utils._pytree.tree_map(function, tree)
