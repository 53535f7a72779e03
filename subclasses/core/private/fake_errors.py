"""What torch's own fake tensors raise, what they log meanwhile, and the global state on which kernels depend."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
    "deterministic",
    "devices_that_differ",
    "lowers_precision_in_mkldnn",
    "mkldnn_enabled",
    "quietly",
]

deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms
mkldnn_enabled: Callable[[], bool] = torch._C._get_mkldnn_enabled


def mkldnn_takes(dtype: torch.dtype) -> bool:
    """Whether this CPU has oneDNN's kernels for a 16-bit dtype."""
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float16 and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def lowers_precision_in_mkldnn(dtype: torch.dtype) -> bool:
    """Whether oneDNN's recurrent kernels take a 16-bit dtype on this CPU; float16, outside autograd alone."""
    return mkldnn_takes(dtype) and not (dtype is torch.float16 and torch.is_grad_enabled())


_DIFFER = re.compile(r"two (?:different )?devices,? (\S+?),? (?:and )?([a-z]+(?::\d+)?)")


def devices_that_differ(error: Exception) -> tuple[str, str] | None:
    """The two devices of torch's complaint that operands are not on one; None of another error. Its class, and its
    text, differ between versions."""
    kind = getattr(fake_tensor, "FakeTensorDeviceMismatchError", RuntimeError)
    found = _DIFFER.search(str(error)) if isinstance(error, kind) else None
    return (found[1], found[2]) if found else None


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
