"""Operators without a rule: the result is that of the dequantized values, and a write reaches the payload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import lamina
from lamina import ScaledInt8Tensor

READS: dict[str, Callable[[Any], Any]] = {
    "view": lambda w: w.view(6, 2),
    "view by keyword": lambda w: torch.Tensor.view(w, size=(2, 6)),
    "reshape": lambda w: w.reshape(-1),
    "reshape of a transposed": lambda w: w.t().reshape(12),
    "flatten": lambda w: w.flatten(),
    "as_strided": lambda w: w.as_strided((2, 2), (4, 1), 1),
    "unsqueeze": lambda w: w.unsqueeze(1),
    "expand": lambda w: w.expand(2, 3, 4),
    "chunk": lambda w: w.chunk(2),
    "chunk columns": lambda w: w.chunk(3, dim=1),
    "split": lambda w: w.split([1, 2]),
    "split columns": lambda w: w.split(3, 1),
    "unbind": lambda w: w.unbind(1),
    "narrow": lambda w: w.narrow(1, 1, 2),
    "slice": lambda w: w[1:],
    "slice with a step": lambda w: w[:, ::2],
    "row": lambda w: w[-1],
    "element": lambda w: w[1, 2],
    "index": lambda w: w[:, [0, 2]],
    "mask": lambda w: w[w > 0],
    "index_select": lambda w: w.index_select(0, torch.tensor([2, 0])),
    "gather": lambda w: w.gather(1, torch.tensor([[0], [1], [2]])),
    "take": lambda w: w.take(torch.tensor([5, 0])),
    "diagonal": lambda w: w.diagonal(),
    "iteration": list,
    "cat": lambda w: torch.cat([w, torch.ones(1, 4), w]),
    "stack": lambda w: torch.stack([w, w], dim=1),
    "add": lambda w: w + 1,
    "radd": lambda w: torch.ones(3, 4) + w,
    "rsub": lambda w: 1 - w,
    "mul": lambda w: w * w,
    "neg": lambda w: -w,
    "div": lambda w: w / torch.tensor(3.0),
    "pow": lambda w: w**2,
    "floor_divide": lambda w: w // 0.1,
    "relu of a negative": lambda w: (w * -1).relu(),
    "less of a negative": lambda w: (w * -1) < 0.2,
    "equal elements": lambda w: w == w.t().t(),
    "unequal elements": lambda w: w != 0,
    "where": lambda w: torch.where(w > 0, w, torch.zeros(())),
    "clamp": lambda w: w.clamp(-0.1, 0.1),
    "sum": lambda w: w.sum(),
    "max": lambda w: w.max(dim=1),
    "argmax": lambda w: w.argmax(),
    "norm": torch.linalg.vector_norm,
    "softmax": lambda w: w.softmax(-1),
    "layer_norm": lambda w: F.layer_norm(w, (4,)),
    "embedding": lambda w: F.embedding(torch.tensor([2, 2, 0]), w),
    "cumsum": lambda w: w.cumsum(0),
    "einsum": lambda w: torch.einsum("ij,kj->ik", w, w),
    "zeros_like": torch.zeros_like,
    "ones_like": lambda w: torch.ones_like(w, dtype=torch.int64),
    "full_like": lambda w: torch.full_like(w, 2.0),
    "new_zeros": lambda w: w.new_zeros(2, 2),
    "new_tensor": lambda w: w.new_tensor([1.0, 2]),
    "item": lambda w: w[0, 0].item(),
    "sum item": lambda w: w.sum().item(),
    "float": lambda w: float(w[0, 1]),
    "tolist": lambda w: w.tolist(),
    "numpy": lambda w: torch.from_numpy(w.numpy()),
    "len": len,
    "numel": lambda w: (w.numel(), w.dim(), w.element_size(), w.is_floating_point()),
    "foreach": lambda w: torch._foreach_add([w, w], 1.0),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda w: w.add_(torch.arange(4.0), alpha=2),
    "iadd": lambda w: w.__iadd__(1),
    "mul_": lambda w: w.mul_(torch.tensor([[-1.0], [2], [0]])),
    "zero_": lambda w: w.zero_(),
    "fill_": lambda w: w.fill_(3),
    "clamp_": lambda w: w.clamp_(min=0),
    "addmm_": lambda w: w.addmm_(torch.ones(3, 2), torch.ones(2, 4)),
    "addcmul_": lambda w: w.addcmul_(torch.ones(3, 4), torch.arange(4.0), value=0.5),
    "lerp_": lambda w: w.lerp_(torch.ones(3, 4), 0.5),
    "copy_": lambda w: w.copy_(torch.arange(12.0).view(3, 4)),
    "masked_fill_": lambda w: w.masked_fill_(torch.eye(3, 4).bool(), -1),
    "index_fill_": lambda w: w.index_fill_(0, torch.tensor([1]), 5),
    "index_put_": lambda w: w.index_put_((torch.tensor([0, 2]),), torch.tensor(2.0)),
    "setitem row": lambda w: w.__setitem__(0, torch.arange(4.0)),
    "setitem columns": lambda w: w.__setitem__((slice(None), slice(1, 3)), 7),
    "setitem index": lambda w: w.__setitem__((slice(None), [0, 2]), 1),
    "write to a row": lambda w: w[1].zero_(),
    "write to a column": lambda w: w.t()[1].fill_(2),
    "write to a view": lambda w: w.view(-1).mul_(2),
    "write to a piece": lambda w: w.chunk(3)[2].fill_(1),
    "fill_diagonal_": lambda w: w.fill_diagonal_(2),
    "out": lambda w: torch.add(torch.ones(3, 4), 1, out=w),
    "foreach": lambda w: torch._foreach_add_([w, torch.zeros(2)], 1.0),
    "foreach lists": lambda w: torch._foreach_mul_([w], [torch.arange(4.0)]),
    "init": lambda w: torch.nn.init.constant_(w, 0.5),
    "data": lambda w: w.data.add_(1),
}
MODES = [nullcontext, torch.no_grad, torch.inference_mode]


def make() -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(torch.randn(3, 4))


def assert_equal(got: Any, wanted: Any) -> None:
    assert isinstance(got, torch.Tensor) == isinstance(wanted, torch.Tensor)
    if isinstance(wanted, torch.Tensor):
        assert (got.shape, got.dtype, got.stride()) == (wanted.shape, wanted.dtype, wanted.stride())
        assert torch.equal(got.to_plain() if isinstance(got, lamina.WrapperTensor) else got, wanted)
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_equal(a, b)
    else:
        assert got == wanted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", READS)
def test_reads_are_those_of_the_values(name: str, mode: Callable[[], Any]) -> None:
    w = make()
    with mode():
        assert_equal(READS[name](w), READS[name](w.dequantize()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITES)
def test_writes_reach_the_payload(name: str, mode: Callable[[], Any]) -> None:
    """What the operator does to the values, rounded by the recipe of the tensor, into the same memory."""
    w = make()
    leaves = (w.qdata.data_ptr(), w.scale.data_ptr())
    values = w.dequantize()
    with mode():
        WRITES[name](w)
        WRITES[name](values)
    wanted = ScaledInt8Tensor.quantize(values)
    assert torch.equal(w.qdata, wanted.qdata)
    assert torch.equal(w.scale, wanted.scale)
    assert (w.qdata.data_ptr(), w.scale.data_ptr()) == leaves


@pytest.mark.parametrize(
    "name", ["add", "mul", "neg", "view", "row", "index", "sum", "softmax", "cat", "chunk", "embedding"]
)
def test_gradients_are_those_of_the_values(name: str) -> None:
    def total(out: Any) -> torch.Tensor:
        parts = out if isinstance(out, (list, tuple)) else [out]
        return torch.stack([(part * (i + 2.0)).pow(2).sum() for i, part in enumerate(parts)]).sum()

    w = torch.nn.Parameter(make())
    values = w.detach().dequantize().requires_grad_()
    total(READS[name](w)).backward()
    total(READS[name](values)).backward()
    assert w.grad is not None
    assert type(w.grad) is torch.Tensor
    assert torch.equal(w.grad, values.grad)


def test_comparisons_in_all_mixes() -> None:
    w = make()
    same, other, plain = w.clone(), ScaledInt8Tensor.quantize(torch.randn(3, 4)), w.dequantize()
    for a, b in [(w, same), (w, plain), (plain, w)]:
        assert torch.equal(a, b)
        assert torch.allclose(a, b)
        torch.testing.assert_close(a, b, check_stride=False)
        assert bool((a == b).all())
        assert not bool((a != b).any())
    for a, b in [(w, other), (other, plain), (plain, other)]:
        assert not torch.equal(a, b)
        assert not torch.allclose(a, b)
        with pytest.raises(AssertionError, match="not close"):
            torch.testing.assert_close(a, b)


def test_two_that_differ_in_scale_alone_are_unequal() -> None:
    w = make()
    other = ScaledInt8Tensor(w.qdata.clone(), w.scale * 2)
    assert not torch.equal(w, other)
    assert not torch.allclose(w, other)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "write",
    [
        lambda t, w: t.add_(w),
        lambda t, w: t.mul_(w),
        lambda t, w: t.copy_(w),
        lambda t, w: t.__setitem__(0, w[0]),
        lambda t, w: torch._foreach_add_([t], [w]),
        lambda t, w: torch.mul(w, 2, out=t),
    ],
)
def test_a_plain_tensor_takes_it_as_an_operand_of_a_write(
    write: Callable[[Any, Any], Any], mode: Callable[[], Any]
) -> None:
    w, target, wanted = make(), torch.ones(3, 4), torch.ones(3, 4)
    with mode():
        write(target, w)
        write(wanted, w.dequantize())
    assert type(target) is torch.Tensor
    assert torch.equal(target, wanted)


def test_a_missing_write_back_is_refused() -> None:
    w = make()
    before = w.dequantize()
    for refused in (lambda: w.resize_(2, 2), lambda: w.as_strided_((2, 2), (1, 2))):
        with pytest.raises(lamina.UnwrittenError):
            refused()
    assert torch.equal(w.dequantize(), before)


def test_bool_of_several_values() -> None:
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(make())


def test_a_fallback_is_an_error_in_strict() -> None:
    w = make()
    with lamina.strict(), pytest.raises(lamina.FallbackError, match=r"aten\.add"):
        w + 1
