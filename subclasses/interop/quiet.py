"""Imports, and scopes, of packages that talk too much."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

# torchao logs each kernel library that this machine can't load, torch that torchao registers an Enum, and its flop
# counter that it won't count Triton's kernels where there is no Triton.
_TALKATIVE = ("torchao", "torch.utils._pytree", "torch.utils.flop_counter")


def quiet_import(name: str) -> ModuleType:
    """The module ``name``. What its import warns of, or logs as a warning, isn't shown; errors are."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    with errors_only(*_TALKATIVE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@contextmanager
def errors_only(*names: str) -> Iterator[None]:
    """What these loggers log as warnings, and below, isn't shown meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.ERROR))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
