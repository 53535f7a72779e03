"""What torch's own fake tensors raise, what they log meanwhile, and the global state on which kernels depend."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    UnsupportedOperatorException,
)

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensorDeviceMismatchError",
    "UnsupportedOperatorException",
    "deterministic",
    "mkldnn_enabled",
    "quietly",
]

deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms
mkldnn_enabled: Callable[[], bool] = torch._C._get_mkldnn_enabled


class _Quiet(threading.local, logging.Filter):
    """Torch logs a call that its fake tensors refuse, with a traceback, besides raising the error."""

    def __init__(self) -> None:
        logging.Filter.__init__(self)
        self.depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0


_quiet = _Quiet()
fake_tensor.log.addFilter(_quiet)


@contextmanager
def quietly() -> Iterator[None]:
    """Inside, torch's fake tensors raise and don't log; in this thread."""
    _quiet.depth += 1
    try:
        yield
    finally:
        _quiet.depth -= 1
