"""Where torch's fake tensors give other metadata than the real operators: a table, with the reason of each.

Found by comparing them on all of PyTorch's operator samples. Those of the table hold for the pieces of operators, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import FakeTensor, OpOverload, below_python, kernel_of_fakes, set_conj
from .strides import strides_of_empty
from .zeros import on_zeros

aten = torch.ops.aten
Compute = Callable[[OpOverload, Sequence[Any], Mapping[str, Any]], Any]


def corrected(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], compute: Compute) -> Any:
    """``compute(op, args, kwargs)``, put right where torch is known to be wrong."""
    found = _CORRECTIONS.get(op)
    return compute(op, args, kwargs) if found is None else found(compute, op, *args, **kwargs)


def laid_out(op: OpOverload, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a whole call. Element-wise operators in Python lay out empty results as if no operand had been
    broadcast. Not those that stand for the pieces of another kernel: that has its own way."""
    if torch.Tag.pointwise not in op.tags or not isinstance(result, torch.Tensor) or result.numel():
        return result
    operands = [*tensors_in((tuple(args), dict(kwargs)))]
    if any(result is each for each in operands) or len(operands) == 1:
        return result
    return aten.as_strided.default(result, result.shape, strides_of_empty(result.shape, operands))


def _view(compute: Compute, op: OpOverload, self: Any, size: Sequence[int]) -> Any:
    """The fake one is in Python, and gives dims of size 1 other strides than C++."""
    with kernel_of_fakes(self.fake_mode), below_python():
        view = op(self, size)
    return FakeTensor(self.fake_mode, view, self.device)


def _max_unpool2d(compute: Compute, op: OpOverload, self: Any, indices: Any, size: Sequence[int]) -> Any:
    """The fake one forgets the memory format of its operand."""
    result = compute(op, (self, indices, size), {})
    last = self.dim() == 4 and self.is_contiguous(memory_format=torch.channels_last) and not self.is_contiguous()
    return aten.clone.default(result, memory_format=torch.channels_last) if last else result


def _lu_solve_out(compute: Compute, op: OpOverload, lu: Any, pivots: Any, b: Any, **kwargs: Any) -> Any:
    """The real one solves from the right by transposing, and leaves the result conjugated; so does the fake function,
    but not with ``out=``."""
    result = compute(op, (lu, pivots, b), kwargs)
    if not kwargs.get("left", True) and result.is_complex() and result.numel():
        set_conj(result, not result.is_conj())
    return result


def _addbmm_(compute: Compute, op: OpOverload, self: Any, *args: Any, **kwargs: Any) -> Any:
    """The real one resizes its operand, which broadcasts; the fake one writes to it, and fails."""
    result = compute(aten.addbmm.default, (self, *args), kwargs)
    return compute(aten.resize_.default, (self, result.shape), {}) if result.shape != self.shape else self


def _addr(compute: Compute, op: OpOverload, self: Any, one: Any, other: Any, **kwargs: Any) -> Any:
    """The fake one takes the dtype of the vectors."""
    dtype = torch.promote_types(self.dtype, torch.promote_types(one.dtype, other.dtype))
    return compute(op, (self, aten._to_copy.default(one, dtype=dtype), other), kwargs)


def _by_onednn(compute: Compute, op: OpOverload, self: Any, *args: Any) -> Any:
    """The fake ones know no workspace, and give gradients another dtype: oneDNN itself is asked."""
    return on_zeros(op, (self, *args), {}, self.fake_mode.fake_of)


_CORRECTIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten.max_unpool2d.default: _max_unpool2d,
    aten.linalg_lu_solve.out: _lu_solve_out,
    aten.addbmm_.default: _addbmm_,
    aten.addr.default: _addr,
    aten.mkldnn_rnn_layer.default: _by_onednn,
    aten.mkldnn_rnn_layer_backward.default: _by_onednn,
}
