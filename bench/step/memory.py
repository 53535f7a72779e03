"""Bytes: the most that a step has alive, and what a wrapper takes beside the tensor that it holds."""

from __future__ import annotations

import ctypes
import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ..subjects import Subject

WRAPPERS, SIDE = 512, 8


def peak_bytes(step: Callable[[], object]) -> int:
    """The most bytes of tensors alive at once that one step allocates, over those that were there before.

    As torch's CPU allocator says, so with the buffers of compiled code.
    """
    step()  # what is allocated once, such as an optimizer's state, is there then
    with _silent_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    alive = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    return most


@contextmanager
def _silent_profiler() -> Iterator[None]:
    """Without this the profiler says on stderr that it starts, and that it stops."""
    with patch.dict(os.environ, {"KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99")}):
        yield


@dataclass(frozen=True)
class Overhead:
    """Bytes of one wrapped parameter beyond those of a plain one, for each layer.

    `python`: of Python's objects, as tracemalloc counts them: the wrapper, its dictionary, what was made with it, and
    the Python object of the inner tensor. `native`: of malloc beside those (TensorImpl, autograd's metadata), None
    where the C library does not tell.
    """

    subject: str
    python: float
    native: float | None


def overhead(subject: Subject, layers: int = 1) -> Overhead:
    """Wrap many small parameters and see what that takes, by parameter and layer."""
    python = _bytes_of(subject, layers, _traced) - _bytes_of(subject, 0, _traced)
    native = None
    if _in_use() is not None:
        native = (_bytes_of(subject, layers, _allocated) - _bytes_of(subject, 0, _allocated)) / WRAPPERS / layers
    return Overhead(subject.name, python / WRAPPERS / layers, native)


def _bytes_of(subject: Subject, layers: int, used_by: Callable[[Callable[[], object]], int]) -> int:
    """What so many parameters take."""

    def make() -> list[Tensor]:
        return [nn.Parameter(subject.wrap_layers(torch.zeros(SIDE, SIDE), layers)) for _ in range(WRAPPERS)]

    make()  # what the first one of a class makes once
    return used_by(make)


def _traced(make: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    del kept
    return after - before


def _allocated(make: Callable[[], object]) -> int:
    gc.collect()
    before = _in_use() or 0
    kept = make()
    gc.collect()
    after = _in_use() or 0
    del kept
    return after - before


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def _in_use() -> int | None:
    """The bytes that malloc has given out; None without glibc 2.33."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = _Mallinfo
    said = ask()
    return int(said.uordblks + said.hblkhd)
