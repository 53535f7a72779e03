"""Torch's fake tensors on devices that this build doesn't have.

Some methods of tensors enter a guard of the tensor's device before anything else, and there is none for "cuda" in a
build without CUDA: torch's own decompositions fail there (that of ``uniform_`` calls ``self.copy_``). Such a call is
computed once more with tensors that say they are on the CPU, and the result says where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import FakeTensor, map_nested

CPU = torch.device("cpu")


def lacks_guard(error: RuntimeError) -> bool:
    """Whether the call failed because this build has no such device."""
    return "is not linked with support for" in str(error)


def on_the_cpu(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of ``run``, as if all its fake tensors of one device were on the CPU."""
    found = [tensor for tensor in tensors_in((args, dict(kwargs))) if isinstance(tensor, FakeTensor)]
    before = [(tensor, tensor.fake_device) for tensor in found]
    away = next(device for _, device in before if device != CPU)
    moved = {"args": tuple(args), "kwargs": dict(kwargs)}
    moved = map_nested(lambda leaf: CPU if leaf == away else leaf, moved)
    for tensor, device in before:
        tensor.fake_device = CPU if device == away else device
    try:
        result = run(*moved["args"], **moved["kwargs"])
    finally:
        for tensor, device in before:
            tensor.fake_device = device
    for made in tensors_in(result):
        if all(made is not one for one in found) and made.device == CPU and isinstance(made, FakeTensor):
            made.fake_device = away
    return result
