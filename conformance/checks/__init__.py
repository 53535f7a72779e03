"""The checks, a module for each group. Importing this fills the list."""

from . import checkpoints, comparing, construction, declaration, distributed, life, operands, printing, storage, views

__all__ = [
    "checkpoints",
    "comparing",
    "construction",
    "declaration",
    "distributed",
    "life",
    "operands",
    "printing",
    "storage",
    "views",
]
