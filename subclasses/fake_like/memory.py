"""What real kernels refuse for the memory that operands lie in. Torch's fake kernels have none, and let it pass; and a
replay is of a call whose operands had the same metadata, in memory of their own maybe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from ..core.private import storage_id
from ..core.schema import Argument, OpFacts, value_of
from .plan import Run

aten = torch.ops.aten

# Element-wise, though no tag says so: what is written may be what is read, or lie apart.
_ELEMENTWISE = frozenset(
    "copy_ copysign_ elu elu_ eq_ floor_divide floor_divide_ gcd_ ge_ gelu gelu_ gt_ hardshrink hardsigmoid "
    "hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_ heaviside_ lcm_ le_ leaky_relu leaky_relu_ lt_ mish mish_ "
    "ne_ silu silu_ softplus softshrink where".split()
)
# Checked as those are, when the result has the shape that it needs.
_OF_ONE_SHAPE = frozenset("bernoulli bernoulli_ cumprod cumsum logcumsumexp renorm sort topk".split())
# Element-wise, and not checked.
_UNCHECKED = frozenset(["ldexp", "ldexp_", "mvlgamma"])
# What is written and what is read lie apart; of the second ones where the result is given.
_APART = frozenset("index_add_ index_copy_ index_put_ index_reduce_ put_ scatter_ scatter_add_ scatter_reduce_".split())
_APART_OUT = frozenset("cat gather index_select kthvalue linalg_cross take".split())
# Their fake kernels are in Python, and don't ask whether what is written overlaps with itself.
_UNFOLDED = {
    *(aten.kthvalue.values, aten.index_select.out, aten.take.out, aten.cat.out),
    *(aten.bernoulli.out, aten.bernoulli_.float, aten.bernoulli_.Tensor),
}
# Where the geometry is; its first argument is the position of the size.
_IN_STORAGE = {
    aten.as_strided.default: 1,
    aten.as_strided_.default: 1,
    aten.as_strided_copy.default: 1,
    aten.as_strided_copy.out: 1,
    aten.as_strided_scatter.default: 2,
    aten.as_strided_scatter.out: 2,
}
_ADVICE = "Please clone() the tensor before performing the operation."
_FOLDED = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    f"{_ADVICE}"
)
_OVERLAP = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    f"location. {_ADVICE}"
)


class Operand(NamedTuple):
    """An argument of a call, or one of those in a list."""

    argument: Argument
    place: int | None

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = value_of(self.argument, args, kwargs)
        return value if self.place is None else value[self.place]


Pairs = list[tuple[Operand, Operand]]


def pairs_of(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pairs:
    """What is written and what is read by a call, as far as such geometry is refused in one storage."""
    name, written = facts.op.overloadpacket.__name__, facts.written
    apart = name in _APART or (name in _APART_OUT and bool(written))
    one_shape = name in _OF_ONE_SHAPE
    elementwise = name in _ELEMENTWISE or (torch.Tag.pointwise in facts.op.tags and name not in _UNCHECKED)
    if not (apart or one_shape or elementwise):
        return []
    targets = [each for a in written for each in _operands(a, args, kwargs)]
    sources = [each for a in facts.tensors if not a.written for each in _operands(a, args, kwargs)]
    found = []
    for operands in product(targets, sources):
        target, source = (operand.of(args, kwargs) for operand in operands)
        if (not one_shape or target.shape == source.shape) and _clash(target, source, apart):
            found.append(operands)
    return found


def refuse_folds(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """For a call whose elements are to be written one by one.

    Raises:
        RuntimeError: two of them are one.
    """
    if facts.op not in _UNFOLDED:
        return
    for operand in [each for a in facts.written for each in _operands(a, args, kwargs)]:
        target = operand.of(args, kwargs)
        if any(n > 1 and stride == 0 for n, stride in zip(target.shape, target.stride(), strict=True)):
            raise RuntimeError(_FOLDED)


def watching(pairs: Pairs, run: Run) -> Run:
    """``run``, which refuses operands of one storage where those of ``pairs`` lie in one."""
    if not pairs:
        return run

    def watched(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for one, other in pairs:
            target, source = one.of(args, kwargs), other.of(args, kwargs)
            if target is source or (target.numel() and storage_id(target) == storage_id(source)):
                raise RuntimeError(_OVERLAP)
        return run(args, kwargs)

    return watched


def names_memory(facts: OpFacts) -> bool:
    """Whether a call says itself where in its storage its result lies."""
    return facts.op in _IN_STORAGE


def inside_storage(facts: OpFacts, run: Run) -> Run:
    """``run``, which refuses a result that is larger than the storage: no metadata say how large that is."""
    if not names_memory(facts):
        return run
    first = _IN_STORAGE[facts.op]

    def bounded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(args[0], "_l_metadata", None) is not None and not args[0].is_meta:
            _refuse_outside(args[0], *(value_of(facts.arguments[first + n], args, kwargs) for n in range(3)))
        return run(args, kwargs)

    return bounded


def _refuse_outside(tensor: Any, size: Sequence[int], stride: Sequence[int], offset: int | None) -> None:
    if len(size) != len(stride) or any(n <= 0 for n in size) or any(n < 0 for n in stride):
        return  # refused for that, or of no elements
    start = tensor.storage_offset() if offset is None else offset
    extent = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
    needed, there = extent * tensor.element_size(), tensor.untyped_storage().nbytes()
    if needed > there:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {start}, and itemsize "
            f"{tensor.element_size()} requiring a storage size of {needed} are out of bounds for storage of size "
            f"{there}"
        )


def _operands(argument: Argument, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Operand]:
    value = value_of(argument, args, kwargs)
    if isinstance(value, torch.Tensor):
        yield Operand(argument, None)
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            if isinstance(each, torch.Tensor):
                yield Operand(argument, index)


def _clash(target: torch.Tensor, source: torch.Tensor, apart: bool) -> bool:
    """Whether kernels would refuse the two in one storage, as ``at::get_overlap_status`` would see them there."""
    same = (target.shape, target.stride(), target.dtype) == (source.shape, source.stride(), source.dtype)
    if same and target.storage_offset() == source.storage_offset():
        return apart
    if not target.numel() or not source.numel() or not _is_dense(target) or not _is_dense(source):
        return False
    (first, last), (begin, end) = _range(target), _range(source)
    if (first, last) == (begin, end) and target.stride() == source.stride():
        return apart
    return first < end and begin < last


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory, in whatever order."""
    expected = 1
    for stride, n in sorted((stride, n) for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that it fills."""
    begin = int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + tensor.numel() * tensor.element_size()
