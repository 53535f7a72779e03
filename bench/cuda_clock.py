"""The clock of a GPU: events around each call, on a second-level cache that was flushed before it.

What is timed is the GPU's own work, as in `triton.testing.do_bench`: the flush keeps the GPU busy while the host
launches the call, so the host's own cost shows only where it takes longer than the flush. To time the host's cost of
dispatch on CUDA tensors, use the host's clock and small tensors on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from .stopwatch import Variant

NANOSECONDS_PER_MILLISECOND = 1_000_000
CACHES_FLUSHED = 2


def cuda_device(variants: Iterable[Variant]) -> torch.device | None:
    """The one CUDA device on which arguments of the variants live; None where all are elsewhere."""
    devices = {
        device
        for variant in variants
        for leaf in pytree.tree_leaves(variant.args)
        if isinstance(leaf, torch.Tensor)
        and (device := _real_device(leaf)).type == "cuda"
        and not isinstance(leaf, FakeTensor)  # whose device is claimed for C++, too
    }
    if len(devices) > 1:
        raise ValueError(f"variants on several CUDA devices cannot be timed together: {sorted(map(str, devices))}.")
    return next(iter(devices), None)


def _real_device(tensor: torch.Tensor) -> torch.device:
    """Where the tensor is for C++: a tensor without data may claim another device in Python."""
    with torch._C.DisableTorchFunctionSubclass():
        found: torch.device = torch.Tensor.device.__get__(tensor)
    return found


class CudaStopwatch:
    """Times calls by events. Holds a buffer that is larger than the cache, until it is dropped."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        size = CACHES_FLUSHED * torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(size, dtype=torch.uint8, device=device)

    def __call__(self, variant: Variant, calls: int) -> int:
        """Nanoseconds that so many calls take on the GPU, flushes not counted."""
        events: list[tuple[Any, Any]] = []
        with torch.cuda.device(self._device), variant.scope():
            torch.cuda.synchronize(self._device)
            for _ in range(calls):
                self._flush.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                variant.function(*variant.args)
                end.record()
                events.append((start, end))
            torch.cuda.synchronize(self._device)
        elapsed: float = sum(start.elapsed_time(end) for start, end in events)
        return round(elapsed * NANOSECONDS_PER_MILLISECOND)
