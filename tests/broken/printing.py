"""Broken in how they print and compare."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear

from lamina import LoggingTensor

aten = torch.ops.aten


class PrintsAll(LoggingTensor):
    """Its repr holds all values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.elem.tolist()})"


class SwallowsEquality(Clear):
    """Its rule for ``==`` answers what Python's operator makes of a TypeError."""

    def __eq__(self, other: Any) -> Any:
        return False

    __hash__ = Clear.__hash__


BROKEN = {
    "repr_is_short": (PrintsAll, PrintsAll),
    "equality_is_computed": (SwallowsEquality, SwallowsEquality),
}
