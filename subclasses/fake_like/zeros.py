"""Operators of PyTorch without a fake kernel: the real one is run, on zeros, on the CPU, and shows the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..core.errors import MissingFakeKernelError
from ..core.fields import tensors_in
from ..core.private import DataDependentOutputException, OpOverload, below_python, map_nested, storage_id
from .refusals import missing_kernel, returns_tensors

MOST = 256 << 20  # bytes
_PYTORCHS = ("aten", "prims", "quantized", "torchvision", "torchaudio")


def on_zeros(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], fake: Callable[..., Any]) -> Any:
    """The result of the call with zeros in place of its tensors, as fakes. ``fake(real)`` makes one.

    Raises:
        MissingFakeKernelError: it is no operator of PyTorch, changes an argument's shape, or the zeros take too much.
        DataDependentOutputException: it returns a number.
    """
    if op.namespace not in _PYTORCHS or torch.Tag.inplace_view in op.tags:
        raise missing_kernel(op)
    if not returns_tensors(op):
        raise DataDependentOutputException(op)
    size = sum(t.numel() * t.element_size() for t in tensors_in((tuple(args), dict(kwargs))))
    if size > MOST:
        problem = f"has no fake kernel, and to run it on zeros would take {size / 2**30:.1f} GiB"
        raise MissingFakeKernelError(op, problem, "Plan it with smaller tensors, or register one (torch.library).")
    with below_python(), _generators_kept():
        zeros = _Zeros()
        result = op(*map_nested(zeros, list(args)), **map_nested(zeros, dict(kwargs)))
    return map_nested(lambda value: zeros.back(value, fake, op), result)


class _Zeros:
    """Zeros for fake tensors, and which of these they stand for."""

    def __init__(self) -> None:
        self.made: dict[int, torch.Tensor] = {}
        self.fakes: dict[int, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return value.clone_state()
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.made:
            zeros = self.made[id(value)] = torch.zeros_like(value, device="cpu")
            self.fakes[id(zeros)] = value
        return self.made[id(value)]

    def back(self, value: Any, fake: Callable[..., Any], op: OpOverload) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self.fakes:
            return self.fakes[id(value)]
        given = [storage_id(each) for each in self.made.values() if each.layout is torch.strided]
        if value.layout is torch.strided and storage_id(value) in given:
            raise missing_kernel(op)
        return fake(value)


@contextmanager
def _generators_kept() -> Iterator[None]:
    """What is drawn inside was never drawn."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
