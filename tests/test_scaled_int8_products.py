"""Matrix products on the payload: right within the bound of the arithmetic, and by the rule, not by the fallback.

The reference is exact: ``qdata * scale`` in float64. A product of length K in a dtype with unit roundoff u, summed in
float32 (u32) or better, is within ``((K + 2) min(u, u32) + 4 u) |x| |w|`` of it: K products and sums, then at most four
roundings to the dtype (x times scale, the sum, the sum times scale, the bias). The reference itself is off by K
roundings of float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import lamina
from lamina import QuantizationError, ScaledInt8Tensor
from lamina.subclasses.scaled_int8 import products

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def exact(q: ScaledInt8Tensor) -> torch.Tensor:
    return q.qdata.double() * q.scale.double()


def assert_product(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, dtype: Any = None
) -> None:
    """``out`` is ``a @ b + bias`` (all float64) within the bound above."""
    unit, double = torch.finfo(dtype or out.dtype).eps / 2, torch.finfo(torch.float64).eps / 2
    summed = min(unit, torch.finfo(torch.float32).eps / 2)
    rounding = (a.shape[-1] + 2) * (summed + double) + 4 * unit
    wanted, magnitude = a @ b, a.abs() @ b.abs()
    if bias is not None:
        wanted, magnitude = wanted + bias, magnitude + bias.abs()
    assert type(out) is torch.Tensor
    assert (out.shape, out.dtype) == (wanted.shape, dtype or out.dtype)
    assert bool(((out.double() - wanted).abs() <= rounding * magnitude).all())


@pytest.fixture(autouse=True, params=["operator", "decoded"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All products here are small: once as they are, once as if every weight were large."""
    if request.param == "operator":
        monkeypatch.setattr(products, "SMALL", -1)


@contextmanager
def runs(*ops: Any) -> Iterator[None]:
    """Each of ``ops`` runs by its rule inside, nothing falls back, and no large weight is decoded."""
    table = lamina.op_table(ScaledInt8Tensor)
    before = [table[op].hits for op in ops]
    undone = mock.patch.object(ScaledInt8Tensor, "decode", side_effect=AssertionError("decoded"))
    with lamina.strict(), nullcontext() if products.SMALL >= 0 else undone:
        yield
    for op, hits in zip(ops, before, strict=True):
        assert table[op].how.value == "exact rule"
        assert table[op].hits > hits, f"{op} did not run"


SIZES = [(2, 3, 4), (1, 1, 1), (1, 5, 1), (5, 1, 3), (0, 3, 4), (2, 0, 4), (2, 3, 0), (3, 600, 5)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_in_both_orders_along_both_axes(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    x, y = torch.randn(m, k).to(dtype), torch.randn(k, m).to(dtype)
    rows = ScaledInt8Tensor.quantize(torch.randn(k, n).to(dtype))  # the scale differs along the contraction
    columns = ScaledInt8Tensor.quantize(torch.randn(n, k).to(dtype)).t()  # the scale is a factor of each column
    with runs(aten.mm.default):
        assert_product(x @ rows, x.double(), exact(rows), dtype=dtype)
        assert_product(x @ columns, x.double(), exact(columns), dtype=dtype)
        assert_product(rows.t() @ y, exact(rows.t()), y.double(), dtype=dtype)
        assert_product(columns.t() @ y, exact(columns.t()), y.double(), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mv(dtype: torch.dtype) -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(5, 7).to(dtype))
    v, w = torch.randn(7).to(dtype), torch.randn(5).to(dtype)
    with runs(aten.mv.default):
        assert_product(q @ v, exact(q), v.double(), dtype=dtype)
        assert_product(q.t() @ w, exact(q.t()), w.double(), dtype=dtype)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (2, 1), (0.5, -3), (1, 2)])
def test_addmm(beta: float, alpha: float) -> None:
    x, q, bias = torch.randn(4, 7), ScaledInt8Tensor.quantize(torch.randn(5, 7)), torch.randn(5)
    with runs(aten.addmm.default):
        out = torch.addmm(bias, x, q.t(), beta=beta, alpha=alpha)
        turned = torch.addmm(bias.unsqueeze(1), q, x.t(), beta=beta, alpha=alpha)
    # alpha and beta are one more rounding each, of which the bound counts four
    assert_product(out, alpha * x.double(), exact(q).t(), beta * bias.double())
    assert_product(turned, alpha * exact(q), x.double().t(), beta * bias.double().unsqueeze(1))


@pytest.mark.parametrize("alpha", [1, -3])
def test_addmm_with_beta_0_ignores_its_input(alpha: float) -> None:
    x, q = torch.randn(4, 7), ScaledInt8Tensor.quantize(torch.randn(5, 7))
    out = torch.addmm(torch.full((5,), float("nan")), x, q.t(), beta=0, alpha=alpha)
    assert_product(out, alpha * x.double(), exact(q).t())


def test_every_argument_by_keyword() -> None:
    x, q, bias = torch.randn(4, 7), ScaledInt8Tensor.quantize(torch.randn(5, 7)), torch.randn(5)
    with runs(aten.addmm.default, aten.mm.default):
        assert_product(F.linear(input=x, weight=q, bias=bias), x.double(), exact(q).t(), bias.double())
        assert_product(F.linear(x, q, bias=bias), x.double(), exact(q).t(), bias.double())
        assert_product(torch.addmm(input=bias, mat1=x, mat2=q.t()), x.double(), exact(q).t(), bias.double())
        assert_product(torch.mm(input=x, mat2=q.t()), x.double(), exact(q).t())


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("shape", [(7,), (4, 7), (2, 3, 7), (2, 1, 3, 7), (0, 7)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_runs_by_rules(mode: Callable[[], Any], shape: tuple[int, ...], with_bias: bool) -> None:
    x, q = torch.randn(shape), ScaledInt8Tensor.quantize(torch.randn(5, 7))
    bias = torch.randn(5) if with_bias else None
    with mode(), runs(aten.t.default, aten.addmm.default if with_bias else aten.mm.default):
        out = F.linear(x, q, bias)
    assert_product(out, x.double(), exact(q).t(), None if bias is None else bias.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_both_operands(dtype: torch.dtype) -> None:
    """Backward is a product on the payload too, and both operands get the gradient of the dequantized product."""
    plain = torch.randn(5, 7).to(dtype)
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(plain))
    x = torch.randn(4, 7).to(dtype).requires_grad_()
    bias = torch.randn(5).to(dtype).requires_grad_()
    grad = torch.randn(4, 5).to(dtype)
    with runs(aten.addmm.default, aten.mm.default, aten.t.default):
        F.linear(x, weight, bias).backward(grad)
    assert weight.grad is not None
    assert x.grad is not None
    assert bias.grad is not None
    assert [type(g) for g in (weight.grad, x.grad, bias.grad)] == [torch.Tensor] * 3
    assert_product(x.grad, grad.double(), exact(weight.detach()))
    assert_product(weight.grad, grad.double().t(), x.detach().double())
    assert_product(bias.grad.unsqueeze(0), torch.ones(1, 4, dtype=torch.float64), grad.double())


def test_gradients_of_the_second_order() -> None:
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5, 7)))
    x = torch.randn(4, 7, requires_grad=True)
    (first,) = torch.autograd.grad(F.linear(x, weight).pow(2).sum(), x, create_graph=True)
    got = torch.autograd.grad(first.pow(2).sum(), [x, weight])
    values = weight.detach().dequantize().requires_grad_()
    (first,) = torch.autograd.grad(F.linear(x, values).pow(2).sum(), x, create_graph=True)
    wanted = torch.autograd.grad(first.pow(2).sum(), [x, values])
    assert [type(g) for g in got] == [torch.Tensor] * 2
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)  # four products: 40 terms of 2^-24 on values of 10^2


def test_the_input_of_backward_is_the_payload() -> None:
    """Autograd saves the int8 tensor, no float copy of the weight."""
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5, 7)))
    x = torch.randn(4, 7, requires_grad=True)
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        F.linear(x, weight)
    assert {type(t) for t in saved if t.numel() == weight.numel()} == {ScaledInt8Tensor}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_do_not_overflow(dtype: torch.dtype) -> None:
    """The unscaled sum is 127 * 4096, beyond float16."""
    x, q = torch.ones(1, 4096, dtype=dtype), ScaledInt8Tensor.quantize(torch.ones(2, 4096, dtype=dtype))
    assert F.linear(x, q).tolist() == [[4096.0, 4096.0]]


def test_under_function_transforms() -> None:
    q, x = ScaledInt8Tensor.quantize(torch.randn(5, 7)), torch.randn(4, 7)
    with runs(aten.mm.default):
        grad = torch.func.grad(lambda x: F.linear(x, q).sum())(x)
        mapped = torch.func.vmap(lambda row: F.linear(row, q))(x)
    assert_product(grad, torch.ones(4, 5, dtype=torch.float64), exact(q))
    assert_product(mapped, x.double(), exact(q).t())


@pytest.mark.parametrize("with_bias", [False, True])
def test_autocast_is_followed(with_bias: bool) -> None:
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5, 7)))
    x, bias = torch.randn(4, 7, requires_grad=True), torch.randn(5) if with_bias else None
    product = aten.addmm.default if with_bias else aten.mm.default
    with torch.autocast("cpu", torch.bfloat16), runs(aten._to_copy.default, product):
        out = F.linear(x, weight, bias)
    rounded = x.detach().bfloat16().double()
    added = None if bias is None else bias.bfloat16().double()
    assert_product(out.detach(), rounded, exact(weight.detach()).t(), added, torch.bfloat16)
    out.sum().backward()
    assert weight.grad is not None
    assert (type(weight.grad), weight.grad.dtype) == (torch.Tensor, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_operands_of_two_dtypes_fail_as_plain_ones_do(dtype: torch.dtype) -> None:
    q, x = ScaledInt8Tensor.quantize(torch.randn(5, 7)), torch.ones(4, 7, dtype=dtype)
    with pytest.raises(RuntimeError) as plain:
        F.linear(x, q.dequantize())
    with pytest.raises(RuntimeError) as wrapped:
        F.linear(x, q)
    assert str(plain.value) == str(wrapped.value)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.linear(torch.ones(4, 7), q, torch.ones(5, dtype=dtype))


@pytest.mark.parametrize(
    "call",
    [
        lambda q: torch.ones(4, 6) @ q.t(),
        lambda q: q @ torch.ones(5, 2),
        lambda q: q @ torch.ones(5),
        lambda q: torch.addmm(torch.ones(3), torch.ones(4, 7), q.t()),
        lambda q: torch.addmm(torch.ones(2, 4, 5), torch.ones(4, 7), q.t()),
        lambda q: torch.mm(torch.ones(7), q.t()),
        lambda q: torch.mm(torch.ones(4, 7), q[0, 0]),
        lambda q: torch.mm(torch.ones(4, 7), type(q).quantize(torch.ones(()))),
    ],
)
def test_shapes_that_do_not_fit(call: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"size|shape|matri|dimension"):
        call(ScaledInt8Tensor.quantize(torch.randn(5, 7)))


def test_int8_times_int8() -> None:
    a, b = ScaledInt8Tensor.quantize(torch.randn(4, 7)), ScaledInt8Tensor.quantize(torch.randn(7, 5))
    assert_product(a @ b, exact(a), exact(b))
    assert_product(torch.addmm(ScaledInt8Tensor.quantize(torch.ones(4, 5)), a, b), exact(a), exact(b), torch.ones(4, 5))


def test_int8_bias() -> None:
    x, q, bias = torch.randn(4, 7), ScaledInt8Tensor.quantize(torch.randn(5, 7)), torch.randn(5)
    small = ScaledInt8Tensor.quantize(bias)
    assert_product(F.linear(x, q, small), x.double(), exact(q).t(), exact(small))


def test_batched_products_agree_with_the_dequantized_ones() -> None:
    q, x = ScaledInt8Tensor.quantize(torch.randn(2, 5, 7)), torch.randn(2, 7, 3)
    assert torch.equal(torch.bmm(q, x), torch.bmm(q.dequantize(), x))
    assert torch.equal(torch.einsum("bij,bjk->bik", q, x), torch.einsum("bij,bjk->bik", q.dequantize(), x))


@pytest.mark.parametrize("activation", ["float", "int16", "int8", "auto"])
def test_another_activation_is_a_view_through_which_gradients_and_writes_go(activation: str) -> None:
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(6, 8)))
    other = weight.with_activation(activation)
    assert (type(other), other.activation, weight.activation) == (ScaledInt8Tensor, activation, "float")
    F.linear(torch.randn(3, 8), other).sum().backward()
    assert type(weight.grad) is torch.Tensor
    assert weight.grad.shape == (6, 8)
    with torch.no_grad():
        weight[:, :3].with_activation(activation).fill_(5.0)  # shares its scales with the other columns
    assert float((weight.detach().dequantize()[:, :3] - 5).abs().max()) <= 5 / 254
    with pytest.raises(QuantizationError, match="int4"):
        weight.with_activation("int4")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["float", "int16"])
def test_only_small_weights_are_decoded(activation: str, dtype: torch.dtype) -> None:
    """Forward and backward, eager and compiled: where values are floats of 32 bits or more and can be decoded at once,
    all other products are the operator's."""
    weight = torch.nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5, 7).to(dtype), activation=activation))
    x = torch.randn(4, 7).to(dtype).requires_grad_()

    def step(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight)

    for run in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        run(x).sum().backward()  # compiles
        with torch.profiler.profile(acc_events=True) as seen:
            run(x).sum().backward()
        decoded = activation == "float" and dtype in (torch.float32, torch.float64) and products.SMALL >= 0
        assert [event.name for event in seen.events()].count("lamina::int8_mm") == (0 if decoded else 2)
