"""What real kernels refuse and torch's fake ones let pass, as far as metadata decide it; with the texts of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import OpOverload

aten = torch.ops.aten
Check = Callable[..., None]


def check(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises what the real operator raises and torch's fake one doesn't."""
    if kwargs.get("generator") is not None:
        _same_device(kwargs["generator"], args, kwargs)
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


def _narrow_copy(self: Any, dim: int, *_: Any, **__: Any) -> None:
    """A bare check of the CPU's kernel comes before that of the range."""
    _refuse(
        not self.is_cpu or not self.dim() or dim < self.dim(),
        "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.",
    )


def _index_add(self: Any, dim: int, index: Any, source: Any, **_: Any) -> None:
    if self.dim() and -self.dim() <= dim < self.dim():
        one = source.dim() or index.numel() == 1
        _refuse(bool(one), f"Dimension specified as {dim} but tensor has no dimensions", IndexError)
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


def _product(*operands: Any, **_: Any) -> None:
    """Their fake kernels take factors of any dtypes; no device's kernels do."""
    given = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    dtypes = [operand.dtype for operand in given]
    text = f"expected the factors of a product to have the same dtype, but got {', '.join(map(str, dtypes))}"
    _refuse(len(set(dtypes)) == 1 or any(operand.is_meta for operand in given), text)


_PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.addbmm, aten.mv, aten.addmv, aten.dot, aten.vdot)
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
    aten.narrow_copy.default: _narrow_copy,
    aten.narrow_copy.out: _narrow_copy,
    aten.index_add.default: _index_add,
    aten.index_add_.default: _index_add,
    aten.index_add.out: _index_add,
    aten.complex.default: _complex,
    aten.complex.out: _complex,
}
_CHECKS |= {getattr(packet, name): _product for packet in _PRODUCTS for name in ("default", "out")}
_CHECKS |= {
    packet.default: _product for packet in (aten.addmm_, aten.baddbmm_, aten.addbmm_, aten.addmv_, aten.convolution)
}
