"""The errors of int8 tensors."""

from __future__ import annotations

from ..core.errors import LaminaError


class QuantizationError(LaminaError, ValueError):
    """Values, or a recipe, that int8 with a scale can't stand for."""


class GridError(QuantizationError):
    """A cut, or a group size, that doesn't fall on the borders of groups."""


class PackedError(LaminaError, RuntimeError):
    """A tensor can't have the kernels' layout, or has it and can't be written to."""


class ProductError(LaminaError, RuntimeError):
    """The operands of a product with an int8 matrix don't fit."""


class PartialViewError(LaminaError, RuntimeError):
    """A write to a view whose scale is shared with values outside it, where those are out of reach."""
