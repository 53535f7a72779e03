"""The checks, a module for each group. Importing this fills the list."""

from . import printing

__all__ = ["printing"]
