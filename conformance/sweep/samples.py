"""Cases: one sample of one operator, in one variant and dtype, and fresh copies of its tensors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

SEED = 20240229
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16)
VARIANTS = ("function", "method", "inplace")  # there is "out", too
LIMIT = 5

# Their results hold whatever was in memory, two plain runs differ too: compared by metadata.
UNINITIALIZED = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_".split()
)
# Their C++ derivatives ask for a tensor subclass and then take another formula, with another order of the sums, or
# don't work in place: the gradients are compared up to rounding, and may have other strides.
REORDERED_GRADIENT = frozenset({"cumprod", "masked_fill", "masked.prod", "ormqr", "prod"})
# Its Python backward accumulates into buffers from `torch.empty`, so a gradient can be plain.
PLAIN_GRADIENT = frozenset({"nn.functional.linear_cross_entropy"})
# They promise no alias in their schema and share storage all the same: not judged on aliasing.
UNDECLARED_ALIAS = frozenset({"unsafe_chunk", "unsafe_split"})
# In place they change the shape of a tensor, and leave its values alone.
CHANGES_SHAPE = frozenset("t transpose squeeze unsqueeze swapaxes swapdims resize_ resize_as_ as_strided".split())


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        leaves = tree_leaves((self.input, self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        return Arguments(*tree_map_only(torch.Tensor, function, (self.input, self.args, self.kwargs)))


@dataclass(frozen=True)
class Case:
    """One sample of one operator, in one variant and dtype."""

    op: OpInfo
    variant: str
    dtype: torch.dtype
    index: int
    sample: SampleInput

    @property
    def name(self) -> str:
        return str(self.op.formatted_name)

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def uninitialized(self) -> bool:
        # LAPACK's gelsy takes a pivot vector as input, and torch hands it uninitialized memory.
        return self.op.name in UNINITIALIZED or self.sample.kwargs.get("driver") == "gelsy"

    @property
    def loose(self) -> bool:
        """Compared with one of the exceptions that are named above."""
        return self.uninitialized or self.op.name in REORDERED_GRADIENT | PLAIN_GRADIENT

    @property
    def differentiable(self) -> bool:
        if self.variant == "out":
            return False
        return bool(self.op.supports_inplace_autograd if self.variant == "inplace" else self.op.supports_autograd)

    @cached_property
    def arguments(self) -> Arguments:
        arguments = Arguments(self.sample.input, self.sample.args, self.sample.kwargs)
        return _with_out(self.op, arguments) if self.variant == "out" else arguments

    def fresh_arguments(self, grad: bool) -> Arguments:
        """Copies that no run has touched; those that the sample differentiates are leaves, if ``grad``."""
        return self.arguments.map(Copier(grad))


def _with_out(op: OpInfo, arguments: Arguments) -> Arguments:
    """``arguments`` with tensors of zeros to write the results to."""
    plain = arguments.map(Copier(False))
    seed()
    result = op.get_op()(plain.input, *plain.args, **plain.kwargs)
    result = tuple(result) if isinstance(result, (list, tuple)) else result  # a named tuple is not taken
    zeros = tree_map_only(torch.Tensor, torch.zeros_like, result)
    return replace(arguments, kwargs={**arguments.kwargs, "out": zeros})


class Copier:
    """Copies tensors with their geometry: offset, overlap and shared storages too, which ``clone`` would drop."""

    def __init__(self, grad: bool) -> None:
        self._grad = grad
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._copies: dict[int, torch.Tensor] = {}

    def __call__(self, source: torch.Tensor) -> torch.Tensor:
        if id(source) not in self._copies:
            copy = self._copy(source.detach())
            self._copies[id(source)] = copy.requires_grad_(self._grad and source.requires_grad)
        return self._copies[id(source)]

    def _copy(self, source: torch.Tensor) -> torch.Tensor:
        if source.layout is not torch.strided:
            return source.clone()
        storage = source.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage.clone()
        copy = torch.empty(0, dtype=source.dtype)
        copy.set_(self._storages[storage._cdata], source.storage_offset(), source.size(), source.stride())
        torch._C._set_conj(copy, source.is_conj())
        torch._C._set_neg(copy, source.is_neg())
        return copy


def seed() -> None:
    """Put every generator that operators and samples draw from into one state.

    ``torch.manual_seed`` would also queue a call and a formatted call stack for each accelerator that has not been
    initialized: 3 ms under pytest, several times a case.
    """
    torch.default_generator.manual_seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)


def callable_of(op: OpInfo, variant: str) -> Callable[..., Any] | None:
    """The operator's ``variant``, or None where it has none."""
    if variant == "out" and not op.supports_out:
        return None
    getters: dict[str, Callable[[], Any]]
    getters = {"function": op.get_op, "method": op.get_method, "inplace": op.get_inplace, "out": op.get_op}
    found: Callable[..., Any] | None = getters[variant]()
    return found


def cases(
    ops: Sequence[OpInfo],
    dtypes: Sequence[torch.dtype] = DTYPES,
    variants: Sequence[str] = VARIANTS,
    limit: int | None = LIMIT,
) -> Iterator[Case]:
    """All cases of ``ops``: the first ``limit`` samples each (None: all) in every dtype and variant they have."""
    for op in ops:
        present = [variant for variant in variants if callable_of(op, variant) is not None]
        for dtype in dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            samples = _samples(op, dtype, limit)
            for variant, (index, sample) in itertools.product(present, enumerate(samples)):
                yield Case(op, variant, dtype, index, sample)


def error_cases(ops: Sequence[OpInfo]) -> Iterator[Case]:
    """The wrong inputs that each of ``ops`` knows of."""
    for op in ops:
        if op.error_inputs_func is not None:
            seed()
            for index, wrong in enumerate(op.error_inputs_func(op, "cpu")):
                yield Case(op, "function", torch.float32, index, wrong.sample_input)


def _samples(op: OpInfo, dtype: torch.dtype, limit: int | None) -> list[SampleInput]:
    """The first samples, each made from the same seed.

    Not by ``op.sample_inputs``: that looks for torch's own tests on the call stack and seeds with ``manual_seed``,
    which under pytest takes longer than all comparisons.
    """
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    stream = iter(op.sample_inputs_func(op, "cpu", dtype, grad))
    samples: list[SampleInput] = []
    while limit is None or len(samples) < limit:
        seed()
        sample = next(stream, None)
        if sample is None:
            break
        samples.append(sample)
    return samples
