"""What quantized tensors of others get wrong: of each such fault the whole kind, right here.

The reference is the operator on ``dequantize()``d operands. Where a product runs on the payload, it is the product in
float64, within ``(K + 4)`` roundings of the sum of magnitudes (the zero point's part counted as one).
"""

from __future__ import annotations

import copy
import inspect
import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

import lamina
from lamina import PerGroup, PerTensor, ScaledInt8Tensor
from lamina.subclasses.scaled_int8 import products

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ACTIVATIONS = ["float", "int16", "int8", "auto"]
RECIPES: dict[str, dict[str, Any]] = {
    "rows": {},
    "one scale": {"granularity": PerTensor()},
    "groups": {"granularity": PerGroup(4)},
    "asymmetric rows": {"symmetric": False},
    "one asymmetric scale": {"granularity": PerTensor(), "symmetric": False},
    "asymmetric groups": {"granularity": PerGroup(4), "symmetric": False},
}
SCOPES: dict[str, Callable[[], Any]] = {
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
each_recipe = pytest.mark.parametrize("recipe", RECIPES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_scope = pytest.mark.parametrize("scope", SCOPES)
# Compiling takes a thousand times as long: the plainest and the fullest recipe stand for all, each scope comes once.
two_recipes = pytest.mark.parametrize("recipe", ["rows", "asymmetric groups"])
recipes_and_scopes = pytest.mark.parametrize(
    ("recipe", "scope"), [("asymmetric groups", "grad"), ("rows", "no_grad"), ("asymmetric groups", "inference")]
)


@contextmanager
def case(*names: object) -> Iterator[None]:
    """One of the many cases of a test: from the same seed as each other, and named when it fails."""
    torch.manual_seed(0)
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"case {', '.join(map(str, names))}: {error}") from error


def make(recipe: str = "rows", *shape: int, dtype: torch.dtype = torch.float32, **more: Any) -> ScaledInt8Tensor:
    """Values off centre, so that a zero point that is left out shows."""
    values = torch.randn(shape or (6, 8)) + 1.5
    return ScaledInt8Tensor.quantize(values.to(dtype), **RECIPES[recipe], **more)


def compiled(function: Callable[..., Any], *args: Any) -> Any:
    return torch.compile(function, backend="aot_eager", fullgraph=True)(*args)


def compiled_all(table: dict[str, Callable[..., Any]], *args: Any) -> dict[str, Any]:
    """What each function of a table returns, from one graph."""
    return compiled(lambda *args: {name: function(*args) for name, function in table.items()}, *args)


def plain(value: Any) -> Any:
    """Wrappers by their values, in lists and tuples too."""
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value.dequantize() if isinstance(value, ScaledInt8Tensor) else value


def assert_same(got: Any, wanted: Any) -> None:
    """Shapes, dtypes and values to the bit."""
    if isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_same(a, b)
    elif isinstance(wanted, torch.Tensor):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        torch.testing.assert_close(plain(got), wanted, rtol=0, atol=0, equal_nan=True)
    else:
        assert got == wanted


def assert_product(out: torch.Tensor, x: torch.Tensor, w: ScaledInt8Tensor, bias: torch.Tensor | None = None) -> None:
    """``out`` is ``x @ w.T + bias``."""
    exact = w.double()
    at_zero = type(w)(torch.zeros_like(exact.qdata), *_fields(exact)[1:]).dequantize()
    wanted, size = (
        x.double() @ exact.dequantize().T,
        x.double().abs() @ (exact.dequantize().abs() + 2 * at_zero.abs()).T,
    )
    if bias is not None:
        wanted, size = wanted + bias.double(), size + bias.double().abs()
    unit = torch.finfo(out.dtype).eps / 2
    summed = min(unit, torch.finfo(torch.float32).eps / 2)
    assert type(out) is torch.Tensor
    assert out.shape == wanted.shape
    assert bool(((out.double() - wanted).abs() <= ((x.shape[-1] + 2) * summed + 4 * unit) * size).all())


def _fields(w: ScaledInt8Tensor) -> list[Any]:
    return [getattr(w, field.name) for field in type(w).declaration.fields]


def sqnr(out: torch.Tensor, wanted: torch.Tensor) -> float:
    """Signal to noise, in dB."""
    exact = wanted.detach().double()
    noise = (out.detach().double() - exact).norm()
    return float(20 * torch.log10(exact.norm() / noise.clamp(min=1e-300)))


# 1. A table that accepts any key, so that the fast path never runs


WRONG_KEYS: dict[str, Any] = {
    "function": F.linear,
    "torch.mm": torch.mm,
    "method": torch.Tensor.add_,
    "packet": aten.mm,
    "composite": aten.linear.default,
    "composite matmul": aten.matmul.default,
    "text": "aten.mm",
    "qualified text": "aten::mm.default",
    "None": None,
    "number": 7,
}


def test_1_a_key_that_would_never_fire_is_refused() -> None:
    class Own(ScaledInt8Tensor):
        pass

    def rule(op: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    for name, key in WRONG_KEYS.items():
        with case(name), pytest.raises(lamina.RegistrationError, match=r"torch\.ops|aten|implements"):
            Own.implements(key)(rule)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@each_recipe
def test_1_a_training_step_runs_on_the_payload(recipe: str, activation: str) -> None:
    """Not on dequantized weights, nor on the plain ones that were there before."""
    weight = nn.Parameter(make(recipe, activation=activation))
    x, bias = torch.randn(5, 8, requires_grad=True), torch.randn(6, requires_grad=True)
    table = lamina.op_table(ScaledInt8Tensor)
    before = {op: table[op].hits for op in (aten.addmm.default, aten.mm.default)}
    undone = mock.patch.object(ScaledInt8Tensor, "decode", side_effect=AssertionError("decoded"))
    large = mock.patch.object(products, "SMALL", -1)  # a small weight is decoded by the rule itself
    with lamina.strict(), large, nullcontext() if has_groups(recipe) else undone:
        F.linear(x, weight, bias).square().sum().backward()
    assert [op for op, hits in before.items() if table[op].hits <= hits] == []
    assert [type(t.grad) for t in (x, weight, bias)] == [torch.Tensor] * 3


def has_groups(recipe: str) -> bool:
    """A product with groups in float is one of dequantized values, by the rule for products."""
    return "groups" in recipe


# 2. In-place operators that change a temporary

IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "add_": lambda w: w.add_(1.0),
    "add_ tensor": lambda w: w.add_(torch.ones(8), alpha=-2),
    "sub_": lambda w: w.sub_(torch.ones(6, 1)),
    "mul_": lambda w: w.mul_(-2),
    "div_": lambda w: w.div_(3),
    "pow_": lambda w: w.pow_(2),
    "zero_": lambda w: w.zero_(),
    "fill_": lambda w: w.fill_(0.3),
    "copy_": lambda w: w.copy_(torch.arange(48.0).view(6, 8)),
    "copy_ broadcast": lambda w: w.copy_(torch.arange(8.0)),
    "neg_": lambda w: w.neg_(),
    "abs_": lambda w: w.abs_(),
    "relu_": lambda w: w.relu_(),
    "clamp_": lambda w: w.clamp_(-0.5, 0.5),
    "exp_": lambda w: w.exp_(),
    "sigmoid_": lambda w: w.sigmoid_(),
    "lerp_": lambda w: w.lerp_(torch.ones(6, 8), 0.5),
    "addcmul_": lambda w: w.addcmul_(torch.ones(6, 8), torch.full((8,), 2.0), value=0.5),
    "addcdiv_": lambda w: w.addcdiv_(torch.ones(6, 8), torch.full((8,), 2.0), value=0.5),
    "masked_fill_": lambda w: w.masked_fill_(torch.eye(6, 8, dtype=torch.bool), 4.0),
    "index_fill_": lambda w: w.index_fill_(0, torch.tensor([1, 3]), -1.0),
    "index_add_": lambda w: w.index_add_(0, torch.tensor([1, 3]), torch.ones(2, 8)),
    "index_put_": lambda w: w.index_put_((torch.tensor([1, 3]),), torch.ones(8)),
    "index_copy_": lambda w: w.index_copy_(0, torch.tensor([1, 3]), torch.ones(2, 8)),
    "scatter_": lambda w: w.scatter_(1, torch.zeros(6, 1, dtype=torch.int64), 5.0),
    "w[0] =": lambda w: w.__setitem__(0, 7.0),
    "w[:, 1] =": lambda w: w.__setitem__((slice(None), 1), torch.arange(6.0)),
    "w[mask] =": lambda w: w.__setitem__(torch.eye(6, 8, dtype=torch.bool), 2.0),
    "w +=": lambda w: w.__iadd__(2.0),
    "w *=": lambda w: w.__imul__(2.0),
    "on t()": lambda w: w.t().mul_(2.0),
    "on a view": lambda w: w.view(-1).add_(1.0),
    "on rows": lambda w: w[1:3].mul_(-3.0),
    "on columns": lambda w: w[:, 4:].add_(2.0),
    "on a row": lambda w: w[2].zero_(),
    "out=": lambda w: torch.mul(torch.ones(6, 8), 3.0, out=w),
    "foreach": lambda w: torch._foreach_add_([w], [torch.ones(6, 8)], alpha=2),
    "foreach scalar": lambda w: torch._foreach_mul_([w, torch.ones(2)], 0.5),
}


@each_scope
@each_recipe
def test_2_an_in_place_operator_writes_the_payload(recipe: str, scope: str) -> None:
    for name in IN_PLACE:
        with case(name):
            check_written(recipe, name, scope)


def check_written(recipe: str, name: str, scope: str) -> None:
    w = make(recipe)
    addresses = [tensor.data_ptr() for tensor in lamina.leaf_tensors(w)]
    values = w.dequantize()
    with SCOPES[scope]():
        IN_PLACE[name](w)
        IN_PLACE[name](values)
    wanted = ScaledInt8Tensor.quantize(values, **RECIPES[recipe])
    assert [tensor.data_ptr() for tensor in lamina.leaf_tensors(w)] == addresses
    assert_within_steps(w, wanted.dequantize(), 1 if "on " in name else 0)


def assert_within_steps(w: ScaledInt8Tensor, wanted: torch.Tensor, steps: float) -> None:
    """A write to a part of a block rounds the rest of the block again."""
    largest = w.scale.max() * (steps + 1e-4)
    assert bool(((w.dequantize() - wanted).abs() <= largest).all())


@pytest.mark.parametrize("part", range(6))
def test_2_compiled_too(part: int) -> None:
    """Six in one graph, each on a tensor of its own."""
    names = sorted(set(IN_PLACE) - {"on a view", "w[mask] ="})[part::6]
    tensors = {name: make("asymmetric groups") for name in names}
    values = {name: w.dequantize() for name, w in tensors.items()}

    def function(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
        for name, w in tensors.items():
            IN_PLACE[name](w)
        return {name: w.dequantize() for name, w in tensors.items()}

    outs = compiled(function, tensors)
    for name, w in tensors.items():
        with case(name):
            IN_PLACE[name](values[name])
            assert_same(outs[name], w.dequantize())
            wanted = ScaledInt8Tensor.quantize(values[name], **RECIPES["asymmetric groups"])
            assert_within_steps(w, wanted.dequantize(), 1)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@each_recipe
def test_2_fifty_steps_of_sgd_lower_the_loss(recipe: str, rounding: str) -> None:
    weight, x = nn.Parameter(make(recipe, rounding=rounding)), torch.randn(64, 8)
    target, losses = x @ torch.randn(8, 6), []
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(50):
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(x, weight), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


# 3. Handlers that read arguments by their position

CALLS: dict[str, tuple[Callable[..., Any], Callable[[Any], dict[str, Any]]]] = {
    "linear": (F.linear, lambda w: {"input": X, "weight": w, "bias": BIAS}),
    "addmm": (torch.addmm, lambda w: {"input": BIAS, "mat1": X, "mat2": w.t()}),
    "addmm scaled": (torch.addmm, lambda w: {"input": BIAS, "mat1": X, "mat2": w.t(), "beta": 0.5, "alpha": 2.0}),
    "mm": (torch.mm, lambda w: {"input": X, "mat2": w.t()}),
    "mm, weight first": (torch.mm, lambda w: {"input": w, "mat2": X.t()}),
    "matmul": (torch.matmul, lambda w: {"input": X, "other": w.t()}),
    "mv": (torch.mv, lambda w: {"input": w, "vec": X[0]}),
    "addmv": (torch.addmv, lambda w: {"input": BIAS, "mat": w, "vec": X[0]}),
    "bmm": (torch.bmm, lambda w: {"input": X.unsqueeze(0), "mat2": w.t().unsqueeze(0)}),
    "baddbmm": (
        torch.baddbmm,
        lambda w: {"input": BIAS, "batch1": X.unsqueeze(0), "batch2": w.t().unsqueeze(0), "beta": 0.5},
    ),
    "embedding": (F.embedding, lambda w: {"input": torch.tensor([[0, 2], [5, 0]]), "weight": w, "padding_idx": 0}),
    "bilinear": (F.bilinear, lambda w: {"input1": X, "input2": X, "weight": w.view(6, 1, 8).expand(6, 8, 8)}),
    "conv1d": (F.conv1d, lambda w: {"input": X.view(1, 1, 40), "weight": w.view(6, 1, 8), "bias": BIAS, "stride": 2}),
    "layer_norm": (
        F.layer_norm,
        lambda w: {"input": X, "normalized_shape": (8,), "weight": w[0], "bias": torch.ones(8)},
    ),
    "add": (torch.add, lambda w: {"input": w, "other": torch.ones(8), "alpha": 3}),
    "where": (torch.where, lambda w: {"condition": torch.eye(6, 8).bool(), "input": w, "other": torch.zeros(())}),
    "sum": (torch.sum, lambda w: {"input": w, "dim": 1, "keepdim": True}),
    "clamp": (torch.clamp, lambda w: {"input": w, "min": -0.5, "max": 0.5}),
    "transpose": (torch.transpose, lambda w: {"input": w, "dim0": 0, "dim1": 1}),
    "split": (torch.split, lambda w: {"tensor": w, "split_size_or_sections": 4, "dim": 1}),
    "index_select": (torch.index_select, lambda w: {"input": w, "dim": 0, "index": torch.tensor([4, 1])}),
    "lerp": (torch.lerp, lambda w: {"input": w, "end": torch.zeros(8), "weight": 0.25}),
}
X, BIAS = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)), torch.linspace(-3, 3, 6)


def called(name: str, w: Any, positions: int) -> Any:
    """So many arguments by position, the others by keyword, the last first. Some only have a name."""
    function, arguments = CALLS[name]
    items = list(arguments(w).items())
    count = min(positions, sum(1 for key, _ in items if key not in ("beta", "alpha", "keepdim")))
    return function(*(value for _, value in items[:count]), **dict(reversed(items[count:])))


def assert_called_right(out: Any, name: str, w: ScaledInt8Tensor) -> None:
    """float32 sums of up to 64 terms, of at most 40 each, in another order."""
    wanted = CALLS[name][0](**CALLS[name][1](w.dequantize()))
    torch.testing.assert_close(plain(out), wanted, rtol=1e-4, atol=1e-3, msg=lambda text: f"{name}: {text}")


@each_scope
@each_recipe
def test_3_arguments_by_keyword_are_those_by_position(recipe: str, scope: str) -> None:
    for name, positions in itertools.product(CALLS, range(5)):
        with case(name, positions):
            w = make(recipe)
            with SCOPES[scope]():
                out = called(name, w, positions)
            assert_called_right(out, name, w)


@pytest.mark.parametrize(
    ("recipe", "positions", "scope"),
    [("rows", 0, "grad"), ("asymmetric groups", 4, "no_grad"), ("asymmetric groups", 0, "inference")],
)
def test_3_compiled_too(recipe: str, positions: int, scope: str) -> None:
    w = make(recipe)
    with SCOPES[scope]():
        outs = compiled_all({name: partial(called, name, positions=positions) for name in CALLS}, w)
    for name, out in outs.items():
        assert_called_right(out, name, w)


@each_scope
def test_3_the_bias_of_linear_is_added_however_it_is_passed(scope: str) -> None:
    w = make()
    with SCOPES[scope]():
        calls = [
            F.linear(X, w, BIAS),
            F.linear(X, w, bias=BIAS),
            F.linear(X, weight=w, bias=BIAS),
            F.linear(input=X, weight=w, bias=BIAS),
            F.linear(bias=BIAS, weight=w, input=X),
        ]
    for out in calls:
        assert_product(out, X, w, BIAS)
    assert all(torch.equal(out, calls[0]) for out in calls)


# 4. A weight whose gradient stays None

USES: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "linear": lambda w, x: F.linear(x, w),
    "linear with bias": lambda w, x: F.linear(x, w, torch.ones(6, dtype=x.dtype)),
    "x @ w.T": lambda w, x: x @ w.T,
    "w @ x.T": lambda w, x: w @ x.T,
    "mv": lambda w, x: w @ x[0],
    "batched": lambda w, x: F.linear(x.expand(3, 5, 8), w),
    "bmm": lambda w, x: torch.bmm(x.expand(2, 5, 8), w.t().expand(2, 8, 6)),
    "embedding": lambda w, x: F.embedding(x.abs().argsort(0)[:, 0], w),
    "conv": lambda w, x: F.conv1d(x.view(1, 1, 40), w.view(6, 1, 8)),
    "mul": lambda w, x: w * x[0],
    "add": lambda w, x: w + x[0],
    "slice": lambda w, x: F.linear(x, w[:2]),
    "split": lambda w, x: F.linear(x, w.split(3)[1]),
    "cat": lambda w, x: F.linear(x, torch.cat([w, w])),
    "index": lambda w, x: F.linear(x, w[[0, 2]]),
    "view": lambda w, x: w.view(-1) * x.sum(),
    "dequantize": lambda w, x: F.linear(x, plain(w)),
    "half": lambda w, x: F.linear(x.bfloat16(), w.bfloat16()),
}


@each_recipe
def test_4_a_parameter_gets_a_gradient(recipe: str) -> None:
    """Whether the input requires grad or not."""
    for name, input_too in itertools.product(USES, (True, False)):
        with case(name, input_too):
            weight, x = nn.Parameter(make(recipe)), X.clone().requires_grad_(input_too)
            USES[name](weight, x).square().sum().backward()
            assert_gradients(name, weight, x)


@two_recipes
def test_4_compiled_too(recipe: str) -> None:
    """All in one graph, each with a weight and an input of its own."""
    weights = {name: nn.Parameter(make(recipe)) for name in USES}
    inputs = {name: X.clone().requires_grad_() for name in USES}

    def step(weights: dict[str, Any], inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [USES[name](weights[name], inputs[name]).square().sum() for name in USES]

    torch.stack([out.float() for out in compiled(step, weights, inputs)]).sum().backward()
    for name in USES:
        with case(name):
            assert_gradients(name, weights[name], inputs[name])


def assert_gradients(name: str, weight: nn.Parameter, x: torch.Tensor) -> None:
    """Those of the same use of the weight's values."""
    reference, given = plain(weight.detach()).requires_grad_(), x.detach().clone().requires_grad_(x.requires_grad)
    USES[name](reference, given).square().sum().backward()
    assert type(weight.grad) is torch.Tensor
    assert weight.grad.dtype is weight.dtype
    tolerance = 3e-2 if name == "half" else 1e-5  # roundings of bfloat16, or of float32, in sums of 40 terms
    assert_close_to_largest(weight.grad, reference.grad, tolerance)
    if given.grad is not None:  # some use no values of the input
        assert_close_to_largest(x.grad, given.grad, tolerance)


def assert_close_to_largest(got: torch.Tensor | None, wanted: torch.Tensor | None, tolerance: float) -> None:
    assert got is not None
    assert wanted is not None
    assert float((got - wanted).abs().max()) <= tolerance * max(1.0, float(wanted.abs().max()))


@each_dtype
def test_4_in_every_dtype_and_by_every_product(dtype: torch.dtype) -> None:
    for activation in ACTIVATIONS:
        with case(activation):
            weight = nn.Parameter(make("rows", dtype=dtype, activation=activation))
            x = X.to(dtype, copy=True).requires_grad_()
            F.linear(x, weight).sum().backward()
            assert type(weight.grad) is torch.Tensor
            assert (weight.grad.dtype, weight.grad.shape) == (dtype, weight.shape)
            wanted = torch.ones(6, 5, dtype=torch.float64) @ x.detach().double()
            assert sqnr(weight.grad, wanted) > (30 if activation in ("int8", "auto") else 40)


# 5. Views that keep the old shape

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda w: w.view(48),
    "view, two dims": lambda w: w.view(12, 4),
    "view, more dims": lambda w: w.view(2, 3, 8),
    "view, inferred": lambda w: w.view(3, -1),
    "view, last dim split": lambda w: w.view(6, 2, 4),
    "view_as": lambda w: w.view_as(torch.empty(3, 16)),
    "reshape": lambda w: w.reshape(24, 2),
    "reshape, turned": lambda w: w.t().reshape(4, 12),
    "flatten": lambda w: w.flatten(),
    "flatten, part": lambda w: w.view(2, 3, 8).flatten(0, 1),
    "unflatten": lambda w: w.unflatten(0, (2, 3)),
    "ravel": lambda w: w.ravel(),
    "as_strided": lambda w: w.as_strided((3, 4), (8, 1)),
    "as_strided, offset": lambda w: w.as_strided((2, 4), (16, 1), 12),
    "as_strided, overlapping": lambda w: w.as_strided((3, 8), (4, 1), 4),
    "unsqueeze": lambda w: w.unsqueeze(1),
    "squeeze": lambda w: w.unsqueeze(0).squeeze(0),
    "squeeze all": lambda w: w.unsqueeze(0).unsqueeze(-1).squeeze(),
    "expand": lambda w: w.expand(2, 6, 8),
    "t": lambda w: w.t(),
    "T": lambda w: w.T,
    "mT": lambda w: w.mT,
    "permute": lambda w: w.view(2, 3, 8).permute(2, 0, 1),
    "transpose": lambda w: w.transpose(-1, 0),
    "movedim": lambda w: w.movedim(0, 1),
    "swapaxes": lambda w: w.swapaxes(0, 1),
    "diagonal": lambda w: w.diagonal(1),
    "unfold": lambda w: w.unfold(0, 2, 2),
    "select": lambda w: w[3],
    "select column": lambda w: w[:, 3],
    "narrow": lambda w: w.narrow(0, 1, 3),
    "slice": lambda w: w[1:5:2],
    "None": lambda w: w[:, None],
    "ellipsis": lambda w: w[..., 0],
    "view(dtype)": lambda w: w.view(w.dtype),
    "contiguous": lambda w: w.t().contiguous(),
    "tile": lambda w: w.tile(2, 1),
    "repeat": lambda w: w.repeat(1, 2),
    "flip": lambda w: w.flip(0),
    "roll": lambda w: w.roll(1, 0),
}


@each_scope
@each_recipe
def test_5_a_view_has_the_shape_that_was_asked_for(recipe: str, scope: str) -> None:
    for name, view in VIEWS.items():
        with case(name):
            w = make(recipe)
            with SCOPES[scope]():
                out = view(w)
            assert_same(out, view(w.dequantize()))


@recipes_and_scopes
def test_5_compiled_too(recipe: str, scope: str) -> None:
    w = make(recipe)
    with SCOPES[scope]():
        outs = compiled_all(VIEWS, w)
    for name, out in outs.items():
        with case(name):
            assert_same(out, VIEWS[name](w.dequantize()))


# 6. Pieces that report the whole shape; a sign that went into the scale

PIECES: dict[str, Callable[[Any, int], Any]] = {
    "chunk": lambda w, dim: w.chunk(2, dim),
    "split": lambda w, dim: w.split(4, dim),
    "split sizes": lambda w, dim: w.split([4, w.shape[dim] - 4], dim),
    "tensor_split": lambda w, dim: w.tensor_split([4], dim),
    "unbind": lambda w, dim: w.unbind(dim),
    "torch.chunk": lambda w, dim: torch.chunk(input=w, chunks=2, dim=dim),
    "unsafe_chunk": lambda w, dim: w.unsafe_chunk(2, dim),
    "unsafe_split": lambda w, dim: w.unsafe_split(4, dim),
    "dsplit": lambda w, dim: w.unsqueeze(0).transpose(2, dim if dim < 0 else dim + 1).dsplit([4]),
}


@each_scope
@each_recipe
def test_6_pieces_have_shapes_of_their_own(recipe: str, scope: str) -> None:
    for name, dim in itertools.product(PIECES, (0, 1, -1, -2)):
        with case(name, dim):
            w = make(recipe)
            with SCOPES[scope]():
                out = PIECES[name](w, dim)
            assert_same(list(out), list(PIECES[name](w.dequantize(), dim)))


@recipes_and_scopes
def test_6_compiled_pieces_too(recipe: str, scope: str) -> None:
    w = make(recipe)
    cuts = {(name, dim): partial(function, dim=dim) for name, function in PIECES.items() for dim in (0, -1)}
    with SCOPES[scope]():
        outs = compiled(lambda w: [cut(w) for cut in cuts.values()], w)
    for names, out in zip(cuts, outs, strict=True):
        with case(*names):
            assert_same(list(out), list(cuts[names](w.dequantize())))


NEGATIONS: dict[str, Callable[[Any], Any]] = {
    "* -1": lambda w: w * -1,
    "-1 *": lambda w: -1 * w,
    "* tensor": lambda w: w * torch.tensor(-1.0),
    "/ -1": lambda w: w / -1,
    "neg": lambda w: -w,
    "mul_": lambda w: w.clone().mul_(-1),
    "neg_": lambda w: w.clone().neg_(),
    "mul_ rows": lambda w: w.clone().mul_(torch.tensor([-1.0, 1.0] * 3).unsqueeze(1)),
    "foreach": lambda w: torch._foreach_neg([w])[0],
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "gelu": F.gelu,
    "clamp": lambda w: w.clamp(min=0),
    "clamp max": lambda w: w.clamp(max=0),
    "abs": torch.abs,
    "sign": torch.sign,
    "signbit": torch.signbit,
    "<": lambda w: w < 0,
    "<=": lambda w: w <= 0,
    ">": lambda w: w > 0,
    ">=": lambda w: w >= 0,
    "==": lambda w: w == 0,
    "!=": lambda w: w != 0,
    "< tensor": lambda w: torch.zeros(8) < w,
    "maximum": lambda w: torch.maximum(w, torch.zeros(8)),
    "minimum": lambda w: torch.minimum(w, torch.zeros(8)),
    "max": lambda w: w.max(),
    "amin": lambda w: w.amin(1),
    "argmax": lambda w: w.argmax(1),
    "sort": lambda w: w.sort(1)[0],
    "topk": lambda w: w.topk(2).values,
    "where": lambda w: torch.where(w > 0, w, 0.0),
    "max_pool": lambda w: F.max_pool1d(w, 2),
    "threshold": lambda w: F.threshold(w, 0.1, 0.0),
    "isfinite": torch.isfinite,
}


@each_recipe
def test_6_order_and_sign_survive_a_negation(recipe: str) -> None:
    for negation, negate in NEGATIONS.items():
        with case(negation):
            w = signed(recipe)
            value, wanted = negate(w), plain(negate(w))
            assert bool((wanted < 0).any())
            assert bool((wanted > 0).any())
            assert_answers({name: ask(value) for name, ask in ASKED.items()}, wanted)
            if negation not in ("mul_", "neg_", "mul_ rows"):  # those round again
                assert_same(wanted, negate(w.dequantize()))


@pytest.mark.parametrize(
    ("recipe", "negation"), [("rows", "* -1"), ("rows", "neg_"), ("asymmetric groups", "neg"), ("groups", "mul_ rows")]
)
def test_6_compiled_too(recipe: str, negation: str) -> None:
    w, negate = signed(recipe), NEGATIONS[negation]

    def ask(w: Any) -> Any:
        value = negate(w)
        return {name: function(value) for name, function in ASKED.items()}

    assert_answers(compiled(ask, w), plain(negate(w)))


def signed(recipe: str) -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(torch.randn(6, 8), **RECIPES[recipe])


def assert_answers(outs: dict[str, Any], values: torch.Tensor) -> None:
    for name, out in outs.items():
        with case(name):
            assert_same(out, ASKED[name](values))


# 7. FSDP2 that unwraps to one inner tensor; of 18, DTensor

SHARDED = [name for name in RECIPES if "scale" not in name]


def in_world(rank: int, world: int, port: int, body: Callable[[int, int, Any], None], out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    body(rank, world, init_device_mesh("cpu", (world,)))
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        Path(out).write_text("done")


def run_in_world(world: int, body: Callable[[int, int, Any], None], folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(in_world, (world, port, body, str(folder / "done")), nprocs=world)
    assert (folder / "done").read_text() == "done"


def train_sharded(rank: int, world: int, mesh: Any) -> None:
    """Each rank has the same batch, so the mean gradient is exact."""
    for recipe in SHARDED:
        models = [nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        weight = make(recipe)
        for model in models:
            model[0].weight = nn.Parameter(weight.clone())
        sharded = fully_shard(models[1], mesh=mesh, reshard_after_forward=True)
        assert type(sharded[0].weight._local_tensor) is ScaledInt8Tensor
        x = torch.randn(5, 8)
        for model in models:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        shard, wanted = sharded[0].weight.to_local(), models[0][0].weight.detach()
        assert type(shard) is ScaledInt8Tensor
        assert _fields(shard)[3:] == _fields(wanted)[3:]
        assert torch.equal(shard.qdata, wanted.qdata.chunk(world)[rank])
        assert_same(plain(sharded[0].weight.full_tensor()), wanted.dequantize())
        assert not torch.equal(wanted.dequantize(), weight.dequantize())


def multiply_distributed(rank: int, world: int, mesh: Any) -> None:
    x = torch.randn(3, 8)
    for recipe in SHARDED:
        w = make(recipe)
        for dim, place in ((None, Replicate()), (0, Shard(0)), (1, Shard(1))):
            local = w if dim is None else w.chunk(world, dim)[rank]
            weight = DTensor.from_local(local, mesh, [place])
            assert type(weight.to_local()) is ScaledInt8Tensor
            out = F.linear(DTensor.from_local(x, mesh, [Replicate()]), weight).full_tensor()
            torch.testing.assert_close(out, F.linear(x, w))


def train_and_multiply(rank: int, world: int, mesh: Any) -> None:
    train_sharded(rank, world, mesh)
    multiply_distributed(rank, world, mesh)


@pytest.mark.parametrize("world", [1, 2])
def test_7_and_18_shards_train_as_the_whole_and_dtensors_multiply(world: int, tmp_path: Path) -> None:
    run_in_world(world, train_and_multiply, tmp_path)


def test_7_a_scale_that_cannot_be_cut_is_refused() -> None:
    class Mesh:
        def size(self) -> int:
            return 2

    with pytest.raises(lamina.ShardingError, match=r"scale of shape \(rows, 1\)"):
        make("one scale").fsdp_pre_all_gather(Mesh(), torch.Size([12, 8]), (8, 1), None, None)


# 8. An asymmetric weight whose product ignores the zero point

ASYMMETRIC = [name for name in RECIPES if "asymmetric" in name]
# In dB: float32 sums; 16-bit activations; 8-bit ones. A zero point that is left out leaves less than 5 dB here.
LEAST = {"float": 100.0, "int16": 75.0, "int8": 33.0, "auto": 33.0}
PRODUCTS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "linear": F.linear,
    "linear, bias": lambda x, w: F.linear(x, w, torch.ones(w.shape[0], dtype=x.dtype)),
    "matmul": lambda x, w: x @ w.t(),
    "addmm": lambda x, w: torch.addmm(torch.ones(w.shape[0], dtype=x.dtype), x, w.t(), beta=2, alpha=0.5),
    "weight first": lambda x, w: w @ x.t(),
    "mv": lambda x, w: w @ x[0],
    "bmm": lambda x, w: torch.bmm(x.unsqueeze(0), w.t().unsqueeze(0)),
    "along the rows": lambda x, w: x[:, : w.shape[0]] @ w,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("recipe", ASYMMETRIC)
def test_8_a_product_counts_the_zero_point(recipe: str, activation: str) -> None:
    for rows, scope in itertools.product((1, 3, 16), SCOPES):
        with case(rows, scope):
            x, w = torch.randn(rows, 64), make(recipe, 32, 64, activation=activation)
            assert w.zero_point is not None
            assert int(w.zero_point.int().abs().max()) > 30
            with SCOPES[scope]():
                outs = {name: function(x, w) for name, function in PRODUCTS.items()}
            assert_counted(outs, x, w)


@pytest.mark.parametrize("scope", ["grad", "inference"])
@pytest.mark.parametrize(
    ("recipe", "activation"),
    [(ASYMMETRIC[0], "float"), (ASYMMETRIC[2], "int16"), (ASYMMETRIC[0], "int8"), (ASYMMETRIC[2], "auto")],
)
def test_8_compiled_too(recipe: str, activation: str, scope: str) -> None:
    x, w = torch.randn(16, 64), make(recipe, 32, 64, activation=activation)
    with SCOPES[scope]():
        outs = compiled_all(PRODUCTS, x, w)
    assert_counted(outs, x, w)


def assert_counted(outs: dict[str, torch.Tensor], x: torch.Tensor, w: ScaledInt8Tensor) -> None:
    exact = w.double().dequantize()
    least = {name: sqnr(out, PRODUCTS[name](x.double(), exact)) for name, out in outs.items()}
    assert min(least.values()) > LEAST[w.activation], least


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("recipe", ASYMMETRIC)
def test_8_in_half_precision_too(recipe: str, activation: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        with case(dtype):
            x, w = torch.randn(4, 64).to(dtype), make(recipe, 32, 64, dtype=dtype, activation=activation)
            wanted = F.linear(x.double(), w.double().dequantize())
            assert sqnr(F.linear(x, w), wanted) > min(LEAST[activation], 45)


# 9. half(), to(dtype) and autocast that are ignored

CONVERSIONS: dict[str, tuple[torch.dtype, Callable[[Any], Any]]] = {
    "half": (torch.float16, lambda w: w.half()),
    "bfloat16": (torch.bfloat16, lambda w: w.bfloat16()),
    "float": (torch.float32, lambda w: w.float()),
    "double": (torch.float64, lambda w: w.double()),
    "to": (torch.bfloat16, lambda w: w.to(torch.bfloat16)),
    "to keyword": (torch.float16, lambda w: w.to(dtype=torch.float16)),
    "to other": (torch.float64, lambda w: w.to(torch.ones(1, dtype=torch.float64))),
    "to device and dtype": (torch.bfloat16, lambda w: w.to("cpu", torch.bfloat16)),
    "to copy": (torch.float16, lambda w: w.to(torch.float16, copy=True)),
    "type": (torch.bfloat16, lambda w: w.type(torch.bfloat16)),
    "type_as": (torch.float16, lambda w: w.type_as(torch.ones(1, dtype=torch.float16))),
}


@each_recipe
def test_9_a_conversion_gives_the_dtype(recipe: str) -> None:
    for scope, (name, (_, convert)) in itertools.product(SCOPES, CONVERSIONS.items()):
        with case(scope, name):
            w = make(recipe)
            with SCOPES[scope]():
                out = convert(w)
            assert_converted(name, w, out)


@recipes_and_scopes
def test_9_compiled_too(recipe: str, scope: str) -> None:
    w = make(recipe)
    with SCOPES[scope]():
        outs = compiled_all({name: convert for name, (_, convert) in CONVERSIONS.items()}, w)
    for name, out in outs.items():
        with case(name):
            assert_converted(name, w, out)


def assert_converted(name: str, w: ScaledInt8Tensor, out: Any) -> None:
    dtype = CONVERSIONS[name][0]
    assert type(out) is ScaledInt8Tensor
    assert (out.dtype, out.dequantize().dtype) == (dtype, dtype)
    assert torch.equal(out.qdata, w.qdata)
    assert_same(out.dequantize(), w.double().dequantize().to(dtype))
    assert F.linear(X.to(dtype), out).dtype is dtype


@each_recipe
def test_9_a_module_follows(recipe: str) -> None:
    for name in ("half", "bfloat16", "double", "float"):
        with case(name):
            dtype = CONVERSIONS[name][0]
            model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 4))
            model[0].weight = nn.Parameter(make(recipe))
            getattr(model, name)()
            assert {p.dtype for p in model.parameters()} == {dtype}
            assert type(model[0].weight.data) is ScaledInt8Tensor
            assert model(X.to(dtype)).dtype is dtype


def autocast_step(weight: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    with torch.autocast("cpu", dtype):
        return F.linear(x, weight, BIAS)


@each_recipe
def test_9_autocast_is_followed(recipe: str) -> None:
    for activation, dtype in itertools.product(ACTIVATIONS, (torch.bfloat16, torch.float16)):
        with case(activation, dtype):
            check_autocast(autocast_step, recipe, activation, dtype)


@pytest.mark.parametrize(
    ("recipe", "activation", "dtype"),
    [
        ("rows", "float", torch.bfloat16),
        ("asymmetric groups", "int16", torch.float16),
        ("rows", "int8", torch.float16),
        ("asymmetric groups", "auto", torch.bfloat16),
    ],
    ids=str,
)
def test_9_autocast_compiled_too(recipe: str, activation: str, dtype: torch.dtype) -> None:
    check_autocast(partial(compiled, autocast_step), recipe, activation, dtype)


def check_autocast(step: Callable[..., Any], recipe: str, activation: str, dtype: torch.dtype) -> None:
    weight, x = nn.Parameter(make(recipe, activation=activation)), X.clone().requires_grad_()
    out = step(weight, x, dtype)
    assert out.dtype is dtype
    out.sum().backward()
    assert weight.grad is not None
    assert (type(weight.grad), weight.grad.dtype) == (torch.Tensor, torch.float32)
    wanted = F.linear(X.double(), weight.detach().double().dequantize(), BIAS.double())
    assert sqnr(out.detach(), wanted) > 30


# 12. foreach and fused optimizers that update copies


def _optimizers() -> Iterator[Any]:
    """Each optimizer of torch that takes dense gradients and no closure, in each of its implementations."""
    special = {"LBFGS", "SparseAdam"}
    for name, cls in vars(torch.optim).items():
        if not (inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)) or name in {*special, "Optimizer"}:
            continue
        accepted = inspect.signature(cls).parameters
        for way in ("foreach", "fused"):
            if way in accepted:
                yield pytest.param(cls, {way: True}, id=f"{name} {way}")
        yield pytest.param(cls, {"foreach": False} if "foreach" in accepted else {}, id=f"{name} single")
        yield pytest.param(cls, {}, id=f"{name} default")
        for option in ("amsgrad", "maximize", "nesterov", "centered"):
            if option in accepted:
                more = {"momentum": 0.9} if option == "nesterov" else {}
                yield pytest.param(cls, {option: True, **more}, id=f"{name} {option}")
        if "weight_decay" in accepted:
            yield pytest.param(cls, {"weight_decay": 0.1}, id=f"{name} weight_decay")


# Rates at which the first step goes further than 6 steps of the scale.
RATES = {"Adadelta": 200.0, "Rprop": 0.5, "Adafactor": 0.5, "Muon": 2.0}


@pytest.mark.parametrize(("cls", "options"), list(_optimizers()))
def test_12_an_optimizer_updates_the_payload(cls: Any, options: dict[str, Any]) -> None:
    for recipe in RECIPES:
        with case(recipe):
            check_step(recipe, cls, options)


def check_step(recipe: str, cls: Any, options: dict[str, Any]) -> None:
    """As far as it moves plain values, within the roundings of its two or three writes."""
    quantized = [nn.Parameter(make(recipe)) for _ in range(3)]
    floats = [nn.Parameter(w.detach().dequantize()) for w in quantized]
    before = [p.detach().clone() for p in floats]
    grads = [torch.randn(6, 8) for _ in quantized]
    for group in (quantized, floats):
        for parameter, grad in zip(group, grads, strict=True):
            parameter.grad = grad.clone()
        cls(group, lr=RATES.get(cls.__name__, 0.5), **options).step()
    for w, wanted, old in zip(quantized, floats, before, strict=True):
        step = float(w.scale.max())
        assert float((wanted.detach() - old).abs().max()) > 6 * step
        assert float((w.detach().dequantize() - wanted.detach()).abs().max()) < 2.6 * step


@pytest.mark.parametrize(
    ("cls", "options"),
    [(torch.optim.SGD, {"foreach": False}), (torch.optim.AdamW, {}), (torch.optim.AdamW, {"foreach": True})],
    ids=str,
)
def test_12_so_does_a_compiled_step(cls: Any, options: dict[str, Any]) -> None:
    quantized = [nn.Parameter(make("asymmetric rows")) for _ in range(2)]
    floats = [nn.Parameter(w.detach().dequantize()) for w in quantized]
    grads = [torch.randn(6, 8) for _ in quantized]
    for group, way in ((quantized, "compiled"), (floats, "eager")):
        for parameter, grad in zip(group, grads, strict=True):
            parameter.grad = grad.clone()
        step = cls(group, lr=0.5, **options).step
        (torch.compile(step, backend="aot_eager") if way == "compiled" else step)()
    for w, wanted in zip(quantized, floats, strict=True):
        assert float((w.detach().dequantize() - wanted.detach()).abs().max()) < 2.6 * float(w.scale.max())


def test_12_lbfgs_moves_it() -> None:
    weight, target = nn.Parameter(make()), torch.randn(5, 6)
    optimizer = torch.optim.LBFGS([weight], lr=0.5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(X, weight), target)
        loss.backward()
        return loss

    first = optimizer.step(closure).item()
    assert closure().item() < 0.5 * first


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # of Adagrad's own tensors
@pytest.mark.parametrize("cls", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_12_sparse_gradients_move_the_rows_that_were_used(cls: Any) -> None:
    weight = nn.Parameter(make())
    before = weight.detach().dequantize()
    F.embedding(torch.tensor([1, 4]), weight, sparse=True).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_sparse
    cls([weight], lr=0.5).step()
    moved = (weight.detach().dequantize() - before).abs().amax(1) > 0.1
    assert moved.tolist() == [False, True, False, False, True, False]


# 13. A slice off the grid of groups that makes a corrupt tensor

OFF_GRID: dict[str, Callable[[Any], Any]] = {
    "start": lambda w: w[:, 2:],
    "stop": lambda w: w[:, :6],
    "inside": lambda w: w[:, 1:3],
    "narrow": lambda w: w.narrow(1, 2, 4),
    "split": lambda w: w.split(3, 1),
    "split sizes": lambda w: w.split([2, 6], 1),
    "chunk": lambda w: w.chunk(3, 1),
    "tensor_split": lambda w: w.tensor_split(3, 1),
    "turned": lambda w: w.t()[2:],
    "as_strided": lambda w: w.as_strided((3, 2), (8, 1)),
}


@each_scope
@pytest.mark.parametrize("recipe", [name for name in RECIPES if "groups" in name])
def test_13_a_cut_inside_a_group_names_the_legal_step(recipe: str, scope: str) -> None:
    for name, cut in OFF_GRID.items():
        with case(name):
            w = make(recipe)
            copied = w.clone()
            with SCOPES[scope](), pytest.raises(lamina.GridError, match=r"\b4\b"):
                cut(w)
            assert_same(w.dequantize(), copied.dequantize())


@pytest.mark.parametrize("name", OFF_GRID)
def test_13_compiled_too(name: str) -> None:
    with pytest.raises(Exception, match="groups of 4"):
        compiled(OFF_GRID[name], make("groups"))


@each_recipe
def test_13_every_slice_is_right_or_refused(recipe: str) -> None:
    for start, stop in itertools.combinations(range(9), 2):
        with case(start, stop):
            check_slice(make(recipe), start, stop, "groups" not in recipe or (start % 4 == 0 and stop % 4 == 0))


def check_slice(w: ScaledInt8Tensor, start: int, stop: int, legal: bool) -> None:
    for turned in (False, True):
        source = w.t() if turned else w
        index = slice(start, stop) if turned else (slice(None), slice(start, stop))
        if legal:
            assert_same(source[index], source.dequantize()[index])
        else:
            with pytest.raises(lamina.QuantizationError, match=r"\b4\b"):
                source[index]


# 16. plain.add_(w) that recurses without end

INTO_PLAIN: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "add_": lambda p, w: p.add_(w),
    "add_ alpha": lambda p, w: p.add_(w, alpha=-0.5),
    "sub_": lambda p, w: p.sub_(w),
    "mul_": lambda p, w: p.mul_(w),
    "div_": lambda p, w: p.div_(w.abs() + 1),
    "copy_": lambda p, w: p.copy_(w),
    "+=": lambda p, w: p.__iadd__(w),
    "p[:] =": lambda p, w: p.__setitem__(slice(None), w),
    "p[2:4] =": lambda p, w: p.__setitem__(slice(2, 4), w[2:4]),
    "lerp_": lambda p, w: p.lerp_(w, 0.25),
    "addcmul_": lambda p, w: p.addcmul_(w, torch.ones(8)),
    "addmm_": lambda p, w: p.addmm_(torch.ones(6, 6), w),
    "maximum out=": lambda p, w: torch.maximum(torch.ones(8), w, out=p),
    "add out=": lambda p, w: torch.add(w, 1, out=p),
    "masked_scatter_": lambda p, w: p.masked_scatter_(torch.eye(6, 8).bool(), w),
    "index_add_": lambda p, w: p.index_add_(0, torch.arange(6), w),
    "index_copy_": lambda p, w: p.index_copy_(0, torch.arange(6), w),
    "foreach add_": lambda p, w: torch._foreach_add_([p], [w], alpha=2),
    "foreach copy_": lambda p, w: torch._foreach_copy_([p], [w]),
    "set data": lambda p, w: p.data.add_(w),
}


@each_scope
@each_recipe
def test_16_a_plain_tensor_takes_its_values(recipe: str, scope: str) -> None:
    for name, write in INTO_PLAIN.items():
        with case(name):
            w, got = make(recipe), torch.randn(6, 8)
            wanted = got.clone()
            with SCOPES[scope]():
                write(got, w)
                write(wanted, w.dequantize())
            assert type(got) is torch.Tensor
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)  # addmm_ sums six terms


@recipes_and_scopes
def test_16_compiled_too(recipe: str, scope: str) -> None:
    w = make(recipe)
    targets = {name: torch.randn(6, 8) for name in INTO_PLAIN if name != "set data"}
    wanted = {name: target.clone() for name, target in targets.items()}

    def write(targets: dict[str, torch.Tensor], w: Any) -> None:
        for name, target in targets.items():
            INTO_PLAIN[name](target, w)

    with SCOPES[scope]():
        compiled(write, targets, w)
        write(wanted, w.dequantize())
    torch.testing.assert_close(targets, wanted, rtol=1e-5, atol=1e-5)


# 18. What is missing elsewhere

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "t": lambda w: w.t(),
    "view": lambda w: w.view(-1),
    "cat": lambda w: torch.cat([w, w]),
    "cat columns": lambda w: torch.cat([w, w], 1),
    "cat with plain": lambda w: torch.cat([w, torch.ones(1, 8)]),
    "stack": lambda w: torch.stack([w, w], 1),
    "vstack": lambda w: torch.vstack([w, w]),
    "split": lambda w: w.split(2),
    "equal": lambda w: torch.equal(w, w.clone()),
    "equal plain": lambda w: torch.equal(w, plain(w) + 1),
    "allclose": lambda w: torch.allclose(w, plain(w)),
    "isclose": lambda w: torch.isclose(w, plain(w)),
    "item": lambda w: w[0, 0].item(),
    "tolist": lambda w: w.tolist(),
    "+": lambda w: w + w,
    "-": lambda w: 1 - w,
    "*": lambda w: w * torch.arange(8.0),
    "/": lambda w: w / 3,
    "**": lambda w: w**2,
    "//": lambda w: w // 2,
    "%": lambda w: w % 2,
    "-w": lambda w: -w,
    "abs": abs,
    "index columns": lambda w: w[:, [0, 2]],
    "index rows": lambda w: w[[0, 2]],
    "index mask": lambda w: w[torch.tensor([True, False] * 3)],
    "index both": lambda w: w[[0, 2], [1, 3]],
    "take": lambda w: w.take(torch.tensor([0, 9])),
    "gather": lambda w: w.gather(1, torch.zeros(6, 2, dtype=torch.int64)),
    "norm": lambda w: w.norm(),
    "mean": lambda w: w.mean(0),
    "numpy": lambda w: torch.as_tensor(w.numpy()) if not isinstance(w, ScaledInt8Tensor) else w.dequantize(),
    "softmax": lambda w: w.softmax(-1),
    "iteration": lambda w: [row * 2 for row in w],
    "len": len,
    "bool": lambda w: bool(w[0, 0]),
    "detach": lambda w: w.detach(),
    "slice": lambda w: w[1:3],
}


@each_scope
@each_recipe
def test_18_the_operators_are_there(recipe: str, scope: str) -> None:
    for name, operation in OPERATIONS.items():
        with case(name):
            w = make(recipe)
            with SCOPES[scope]():
                out = operation(w)
            assert_same(out, operation(w.dequantize()))


RETURNED: dict[str, Callable[[Any], Any]] = {
    **{name: OPERATIONS[name] for name in ("t", "view", "cat", "slice", "detach", "index columns", "stack", "split")},
    "itself": lambda w: w,
    "clone": lambda w: w.clone(),
    "select": lambda w: w[0],
    "half": lambda w: w.half(),
    "two": lambda w: (w[:2], w[2:]),
    "beside a product": lambda w: (w[1:], F.linear(X, w)),
}


@pytest.mark.parametrize("name", RETURNED)
def test_18_compiled_functions_return_parts(name: str) -> None:
    w = make("asymmetric groups")
    assert_returned(compiled(RETURNED[name], w), RETURNED[name](w))


def test_18_compiled_functions_return_several_parts() -> None:
    w = make("rows")
    for name, out in compiled_all(RETURNED, w).items():
        with case(name):
            assert_returned(out, RETURNED[name](w))


def assert_returned(out: Any, eager: Any) -> None:
    torch.testing.assert_close(plain(out), plain(eager), rtol=1e-5, atol=1e-5)
    kinds = [type(part) for part in (out if isinstance(out, tuple) else (out,))]
    assert kinds == [type(part) for part in (eager if isinstance(eager, tuple) else (eager,))]


def layer(recipe: str = "rows", *, quantized: bool = True) -> nn.Linear:
    linear = nn.Linear(8, 6)
    if quantized:
        linear.weight = nn.Parameter(make(recipe))
    return linear


@each_recipe
def test_18_state_dicts_load_into_either(recipe: str) -> None:
    for target, source, assign in itertools.product((True, False), repeat=3):
        with case(f"into int8 {target}", f"from int8 {source}", f"assign {assign}"):
            check_loaded(recipe, target, source, assign)


def check_loaded(recipe: str, target: bool, source: bool, assign: bool) -> None:
    old, new = layer(recipe, quantized=source), layer(recipe, quantized=target)
    with torch.no_grad():
        old.weight.mul_(0.5)
        wanted = plain(old.weight.detach())
    new.load_state_dict(old.state_dict(), assign=assign)
    if target and not source and not assign:  # requantized
        wanted = ScaledInt8Tensor.quantize(wanted, **RECIPES[recipe]).dequantize()
    assert_same(plain(new.weight.detach()), wanted)
    assert isinstance(new.weight, ScaledInt8Tensor) is (source if assign else target)


@each_recipe
def test_18_saved_and_loaded_with_weights_only(recipe: str, tmp_path: Path) -> None:
    model = layer(recipe)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    loaded = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert type(loaded["weight"]) is ScaledInt8Tensor
    assert_same(loaded["weight"].dequantize(), model.weight.detach().dequantize())
    assert _fields(loaded["weight"])[3:] == _fields(model.weight)[3:]


@each_recipe
def test_18_an_average_of_models_follows(recipe: str) -> None:
    model = layer(recipe)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    with torch.no_grad():
        model.weight.mul_(3.0)
    old = average.module.weight.detach().dequantize()
    average.update_parameters(model)  # the first copies
    with torch.no_grad():
        model.weight.mul_(3.0)
    old = average.module.weight.detach().dequantize()
    average.update_parameters(model)
    wanted = (old + model.weight.detach().dequantize()) / 2
    assert_within_steps(average.module.weight.detach(), wanted, 1)
    assert float((wanted - old).abs().max()) > 10 * float(average.module.weight.scale.max())


@each_recipe
def test_18_deep_copies_are_independent(recipe: str) -> None:
    model = layer(recipe)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.add_(1.0)
    assert not torch.equal(plain(twin.weight.detach()), plain(model.weight.detach()))
    assert type(twin.weight.data) is ScaledInt8Tensor
