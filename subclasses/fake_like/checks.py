"""What real kernels refuse and torch's fake ones let pass, as far as metadata decide it; with the texts of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import OpOverload, storage_id
from ..core.schema import facts_of, value_of

aten = torch.ops.aten
Check = Callable[..., None]
_CLONE = "Please clone() the tensor before performing the operation."


def check(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises what the real operator raises and torch's fake one doesn't."""
    if kwargs.get("generator") is not None:
        _same_device(kwargs["generator"], args, kwargs)
    if op in _APART:
        _apart(op, tuple(args), kwargs)
    found = _CHECKS.get(op)
    if found is not None:
        found(*args, **kwargs)


def _refuse(holds: bool, text: str, kind: type[Exception] = RuntimeError) -> None:
    if not holds:
        raise kind(text)


def _same_device(generator: torch.Generator, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    first = next(tensors_in((args, kwargs)), None)
    device = kwargs.get("device") if first is None else first.device
    kind, expected = generator.device.type, "cpu" if device is None else torch.device(device).type
    _refuse(kind == expected, f"Expected a '{expected}' device type for generator but found '{kind}'")


# Their meta functions are in Python, and don't ask whether what is written overlaps with itself or with what is read.
_APART = {
    *(aten.kthvalue.values, aten.index_select.out, aten.take.out, aten.cat.out),
    *(aten.bernoulli.out, aten.bernoulli_.float, aten.bernoulli_.Tensor),
}


def _apart(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    facts = facts_of(op)
    read = [t for a in facts.tensors if not a.written for t in tensors_in(value_of(a, args, kwargs))]
    for target in [t for a in facts.written for t in tensors_in(value_of(a, args, kwargs))]:
        folded = any(n > 1 and stride == 0 for n, stride in zip(target.shape, target.stride(), strict=True))
        several = "unsupported operation: more than one element of the written-to tensor refers to a single memory "
        _refuse(not folded, f"{several}location. {_CLONE}")
        for source in read:
            some = "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
            _refuse(not _overlap(target, source), f"{some}single memory location. {_CLONE}")


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not other.numel() or storage_id(one) != storage_id(other):
        return False
    (first, last), (begin, end) = _range(one), _range(other)
    return first < end and begin < last


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that lie between its first and its last element, these included."""
    extent = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    begin = int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + extent * tensor.element_size()


def _multinomial(self: Any, num_samples: int, replacement: bool = False, *, out: Any = None, **_: Any) -> None:
    kinds, name = {torch.int64: "Long"}, str(self.dtype).removeprefix("torch.").title()
    given = kinds.get(self.dtype, name)
    _refuse(self.is_floating_point(), f"multinomial only supports floating-point dtypes for input, got: {given}")
    _refuse(num_samples > 0, "cannot sample n_sample <= 0 samples")
    if self.dim():
        enough = replacement or num_samples <= self.size(-1)
        _refuse(enough, "cannot sample n_sample > prob_dist.size(-1) samples without replacement")
        _refuse(self.size(-1) <= 1 << 24, "number of categories cannot exceed 2^24")
    if out is not None:
        _refuse(out.dtype is torch.int64, f"multinomial expects Long tensor out, got: {out.dtype}")


def _cat(tensors: Sequence[Any], dim: int = 0, *, out: Any = None) -> None:
    for index, tensor in enumerate(tensors):
        _refuse(tensor.dim() > 0, f"zero-dimensional tensor (at position {index}) cannot be concatenated")


def _reducing(name: str) -> Check:
    """Of an empty tensor, along dims that have elements."""

    def reduces(self: Any, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> None:
        _reduced(name, self, dim)

    return reduces


def _aminmax(self: Any, *, dim: Any = None, keepdim: bool = False, min: Any = None, max: Any = None) -> None:  # noqa: A002
    _reduced("aminmax", self, () if dim is None else (dim,))
    for out in (min, max):
        if out is not None and out.dtype is not self.dtype:
            raise RuntimeError(f"Expected out tensor to have dtype {self.dtype}, but got {out.dtype} instead")


def _reduced(name: str, self: Any, dims: Sequence[int]) -> None:
    if self.numel() == 0 and self.dim():
        for dim in dims:
            if -self.dim() <= dim < self.dim():
                _refuse(self.size(dim) > 0, f"{name}: Expected reduction dim {dim} to have non-zero size.", IndexError)


def _uniform(self: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> None:
    _refuse(low <= high, f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")


def _masked_scatter(self: Any, mask: Any, source: Any) -> None:
    text = f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}"
    _refuse(mask.dtype is torch.bool, text)


def _bucketize(self: Any, boundaries: Any, **_: Any) -> None:
    _refuse(boundaries.dim() == 1, f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")


def _index_add(self: Any, dim: int, index: Any, source: Any, **_: Any) -> None:
    if self.dim() and source.dim() and -self.dim() <= dim < self.dim():
        sizes = [[n for d, n in enumerate(t.shape) if d != dim % self.dim()] for t in (self, source)]
        text = "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
        _refuse(sizes[0] == sizes[1], f"{text}{list(self.shape)} source.shape = {list(source.shape)}")


def _complex(real: Any, imag: Any, *, out: Any = None) -> None:
    same = real.dtype is imag.dtype
    _refuse(same, f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype} for second argument")
    if out is not None and real.is_floating_point():
        wanted = real.dtype.to_complex()
        text = f"Expected object of scalar type {wanted} but got scalar type {out.dtype} for argument 'out'"
        _refuse(out.dtype is wanted, text)


def _select(self: Any, dim: int, index: int) -> None:
    n = self.dim()
    _refuse(n > 0, "select() cannot be applied to a 0-dim tensor.", IndexError)
    text = f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
    _refuse(-n <= dim < n, text, IndexError)
    size = self.size(dim)
    text = f"select(): index {index} out of range for tensor of size {list(self.shape)} at dimension {dim}"
    _refuse(-size <= index < size, text, IndexError)


_CHECKS: dict[OpOverload, Check] = {
    aten.select.int: _select,
    aten.multinomial.default: _multinomial,
    aten.multinomial.out: _multinomial,
    aten.cat.default: _cat,
    aten.cat.out: _cat,
    aten.amax.default: _reducing("amax()"),
    aten.amax.out: _reducing("amax()"),
    aten.amin.default: _reducing("amin()"),
    aten.amin.out: _reducing("amin()"),
    aten.aminmax.default: _aminmax,
    aten.aminmax.out: _aminmax,
    aten.uniform_.default: _uniform,
    aten.masked_scatter_.default: _masked_scatter,
    aten.masked_scatter.default: _masked_scatter,
    aten.bucketize.Tensor: _bucketize,
    aten.bucketize.Tensor_out: _bucketize,
    aten.index_add.default: _index_add,
    aten.index_add_.default: _index_add,
    aten.index_add.out: _index_add,
    aten.complex.default: _complex,
    aten.complex.out: _complex,
}
