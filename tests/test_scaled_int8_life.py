"""A ScaledInt8 parameter inside a module: saved, loaded, copied, converted, moved, nested, printed."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from int8_recipes import RECIPES, addresses, assert_same_tensor, quantized, values_of
from torch import nn

import lamina
from lamina import PerRow, ScaledInt8Tensor

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def make_layer(*, quantized: bool = True, dtype: torch.dtype = torch.float32) -> nn.Linear:
    layer = nn.Linear(7, 5, dtype=dtype)
    if quantized:
        layer.weight = nn.Parameter(ScaledInt8Tensor.quantize(layer.weight.detach()))
    return layer


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b) is ScaledInt8Tensor
    assert isinstance(a, nn.Parameter) == isinstance(b, nn.Parameter)
    assert (a.granularity, a.logical_dtype, a.requires_grad) == (b.granularity, b.logical_dtype, b.requires_grad)
    assert torch.equal(a.qdata, b.qdata)
    assert torch.equal(a.scale, b.scale)


def saved_and_loaded(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_in", [nullcontext, torch.inference_mode])
def test_a_layer_runs_in_every_grad_mode(mode: Callable[[], Any], made_in: Callable[[], Any]) -> None:
    with made_in():
        q = ScaledInt8Tensor.quantize(torch.randn(5, 7))
    x, values = torch.randn(4, 7), q.dequantize()
    with mode():
        assert torch.allclose(F.linear(x, q), F.linear(x, values), rtol=1e-5, atol=1e-5)  # 9 * 2^-24 |x| |w|, |w| < 30
        assert torch.equal(q.detach().dequantize(), values)
        assert torch.equal(q.clone().dequantize(), values)
        assert torch.equal(q.t().dequantize(), values.t())
        assert torch.equal(q[1:3], values[1:3])
        assert torch.equal(q + 1, values + 1)
    if mode is torch.inference_mode or made_in is nullcontext:
        with mode():
            q.zero_()
            assert q.dequantize().abs().max() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.t()])
def test_weights_only_round_trip(view: Callable[[Any], Any], dtype: torch.dtype) -> None:
    q = view(ScaledInt8Tensor.quantize(torch.randn(3, 5).to(dtype)))
    for loaded in (saved_and_loaded(q), pickle.loads(pickle.dumps(q)), copy.deepcopy(q)):
        assert_same(loaded, q)
        loaded.zero_()
        assert q.dequantize().abs().max() > 0


def test_parameters_survive_saving_and_copying() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    p.grad = torch.ones(3, 5)
    copied = copy.deepcopy(p)
    assert_same(copied, p)
    assert copied.grad is not None
    assert torch.equal(copied.grad, p.grad)
    assert_same(saved_and_loaded(p), p)


def test_state_dict_round_trip_is_bit_exact() -> None:
    layer, other = make_layer(), make_layer()
    addresses = (other.weight.qdata.data_ptr(), other.weight.scale.data_ptr())
    state = saved_and_loaded(layer.state_dict())
    assert type(state["weight"]) is ScaledInt8Tensor
    other.load_state_dict(state)
    assert_same(other.weight, layer.weight)
    assert (other.weight.qdata.data_ptr(), other.weight.scale.data_ptr()) == addresses
    other.load_state_dict(state, assign=True)
    assert_same(other.weight, layer.weight)


def test_a_plain_checkpoint_loads_into_a_quantized_layer_and_back() -> None:
    plain, quantized = make_layer(quantized=False), make_layer()
    quantized.load_state_dict(plain.state_dict())
    assert_same(quantized.weight.detach(), ScaledInt8Tensor.quantize(plain.weight.detach()))
    other = make_layer(quantized=False)
    other.load_state_dict(quantized.state_dict())
    assert type(other.weight.detach()) is torch.Tensor
    assert torch.equal(other.weight, quantized.weight.dequantize())


def test_a_module_is_copied_with_its_weight() -> None:
    layer = make_layer()
    copied = copy.deepcopy(layer)
    assert_same(copied.weight, layer.weight)
    with torch.no_grad():
        copied.weight.zero_()
    assert layer.weight.dequantize().abs().max() > 0


@pytest.mark.parametrize(
    ("name", "dtype"), [("half", torch.float16), ("bfloat16", torch.bfloat16), ("double", torch.float64)]
)
def test_a_module_is_converted(name: str, dtype: torch.dtype) -> None:
    layer = make_layer()
    payload, parameter = layer.weight.qdata.clone(), layer.weight
    getattr(layer, name)()
    assert (type(layer.weight), layer.weight.dtype, layer.bias.dtype) == (ScaledInt8Tensor, dtype, dtype)
    assert torch.equal(layer.weight.qdata, payload)
    assert layer.weight is parameter
    out = layer(torch.randn(4, 7, dtype=dtype))
    assert out.dtype is dtype
    out.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is dtype


def test_a_module_goes_to_another_device() -> None:
    layer = make_layer().to("meta")
    assert [t.device.type for t in (layer.weight, layer.weight.qdata, layer.weight.scale)] == ["meta"] * 3
    assert layer(torch.randn(4, 7, device="meta")).shape == (4, 5)


def test_buffers_and_embeddings() -> None:
    table = nn.Embedding(10, 6)
    values = ScaledInt8Tensor.quantize(table.weight.detach())
    table.weight = nn.Parameter(values)
    index = torch.tensor([[1, 2], [9, 1]])
    out = table(index)
    assert torch.equal(out, F.embedding(index, values.dequantize()))
    out.sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.sum(1).tolist() == [0, 12, 6, 0, 0, 0, 0, 0, 0, 6]
    module = nn.Module()
    module.register_buffer("table", values)
    assert type(saved_and_loaded(module.state_dict())["table"]) is ScaledInt8Tensor


def test_wrapped_and_unwrapped_in_a_module() -> None:
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    values = model[0].weight.detach().clone()
    lamina.wrap_parameters(model, ScaledInt8Tensor.quantize, where=lambda _n, _m, parameter: parameter.dim() == 2)
    assert [type(p) for p in model.parameters()] == [ScaledInt8Tensor, nn.Parameter] * 2
    assert_same(model[0].weight.detach(), ScaledInt8Tensor.quantize(values))
    with lamina.strict():
        model(torch.randn(4, 7)).sum().backward()
    lamina.unwrap_parameters(model)
    assert torch.equal(model[0].weight, ScaledInt8Tensor.quantize(values).dequantize())


@pytest.mark.parametrize("averaged", [{}, {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)}])
def test_a_moving_average(averaged: dict[str, Any]) -> None:
    layer = make_layer()
    average = torch.optim.swa_utils.AveragedModel(layer, **averaged)
    first = layer.weight.detach().dequantize()
    average.update_parameters(layer)
    with torch.no_grad():
        layer.weight.mul_(3)
    average.update_parameters(layer)
    weight = average.module.weight.detach()
    assert type(weight) is ScaledInt8Tensor
    # (1 + 3) / 2 of the first; three roundings, each of half a step of a scale that is at most 3/2 of the last
    assert bool(((weight.dequantize() - 2 * first).abs() <= 3 * 0.75 * weight.scale).all())


def test_exported() -> None:
    layer, x = make_layer(), torch.randn(4, 7)
    program = torch.export.export(layer, (x,))
    assert torch.equal(program.module()(x), layer(x))


def test_shared_memory() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(3, 5))
    assert not q.is_shared()
    assert q.share_memory_().is_shared()
    assert q.qdata.is_shared()
    assert q.scale.is_shared()


def test_under_a_logging_layer() -> None:
    layer, x = make_layer(), torch.randn(4, 7)
    wanted = layer(x)
    wanted.sum().backward()
    outer = copy.deepcopy(layer)
    outer.weight = nn.Parameter(lamina.LoggingTensor(layer.weight.detach()))
    with lamina.strict():
        got = outer(x)
        got.sum().backward()
    assert type(got) is lamina.LoggingTensor
    assert torch.equal(got.to_plain(), wanted)
    grad = outer.weight.grad
    grad = grad.to_plain() if isinstance(grad, lamina.WrapperTensor) else grad
    assert torch.equal(grad, layer.weight.grad)


def test_around_a_logging_layer() -> None:
    values = torch.randn(3, 5)
    q = ScaledInt8Tensor.quantize(lamina.LoggingTensor(values))
    assert type(q.qdata) is lamina.LoggingTensor
    x = torch.randn(2, 5)
    assert torch.equal(q.dequantize(), ScaledInt8Tensor.quantize(values).dequantize())
    assert torch.equal((x @ q.t()).to_plain(), x @ ScaledInt8Tensor.quantize(values).t())


def test_repr_shows_the_parts() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.ones(1, 2)))
    assert repr(p).startswith(
        "Parameter containing:\nScaledInt8Tensor(qdata=tensor([[127, 127]], dtype=torch.int8), scale="
    )
    assert repr(p.half()).count("logical_dtype=torch.float16") == 1
    assert f"{ScaledInt8Tensor.quantize(torch.tensor(2.0)):.1f}" == "2.0"


def test_public_names() -> None:
    q = ScaledInt8Tensor.quantize(values=torch.ones(3, 5), granularity=PerRow(), logical_dtype=torch.bfloat16)
    assert torch.equal(q.dequantize(), q.to_plain())
    assert torch.equal(ScaledInt8Tensor(q.qdata, q.scale, None, PerRow(), torch.bfloat16).dequantize(), q.dequantize())
    assert torch.equal(ScaledInt8Tensor.from_plain(torch.ones(3, 5), granularity=PerRow()).qdata, q.qdata)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda w: w,
    "t": lambda w: w.t(),
    "rows": lambda w: w[1:3],
    "columns": lambda w: w[:, 4:8],
    "flat": lambda w: w.view(-1),
    "step": lambda w: w[::2],
    "row": lambda w: w[1],
    "three dims": lambda w: w.view(2, 2, 8),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_are_saved_and_copied_as_tensors_of_their_own(name: str, recipe: str, tmp_path: Path) -> None:
    w = VIEWS[name](quantized(torch.randn(4, 8), recipe))
    values, file = w.dequantize(), tmp_path / "w.pt"
    torch.save(w, file)
    mapped = torch.load(file, weights_only=True, mmap=True)
    loaded = torch.load(file, weights_only=True)
    for other in (copy.deepcopy(w), pickle.loads(pickle.dumps(w)), loaded, mapped.clone()):
        assert type(other) is ScaledInt8Tensor
        assert (other.shape, other.granularity, other.rounding) == (w.shape, w.granularity, w.rounding)
        assert torch.equal(other.dequantize(), values)
        other.zero_()
        assert other.dequantize().abs().max() == 0
        assert torch.equal(w.dequantize(), values)
        assert torch.equal(mapped.dequantize(), values)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mapped", [True, False])
def test_state_dicts_in_all_four_mixes(mapped: bool, dtype: torch.dtype, recipe: str, tmp_path: Path) -> None:
    for source in (True, False):
        for target in (True, False):
            saved, layer = nn.Linear(8, 4, dtype=dtype), nn.Linear(8, 4)
            if source:
                saved.weight = nn.Parameter(quantized(saved.weight, recipe))
            if target:
                layer.weight = nn.Parameter(quantized(layer.weight, recipe))
            torch.save(saved.state_dict(), tmp_path / "layer.pt")
            state = torch.load(tmp_path / "layer.pt", weights_only=True, mmap=mapped)
            leaves = addresses(layer.weight)
            layer.load_state_dict(state)
            assert addresses(layer.weight) == leaves
            assert layer.weight.dtype is torch.float32
            assert isinstance(layer.weight, ScaledInt8Tensor) is target
            wanted, got = values_of(saved.weight).float(), values_of(layer.weight)
            if target and not source:  # a step of the largest value
                assert bool(((got - wanted).abs() <= 1.01 * wanted.abs().max() / 127).all())
            else:
                torch.testing.assert_close(got, wanted, rtol=2**-7 if dtype is torch.bfloat16 else 0, atol=0)
            layer.load_state_dict(state, assign=True)
            assert isinstance(layer.weight, ScaledInt8Tensor) is source
            assert layer.weight.dtype is dtype
            assert torch.equal(values_of(layer.weight), values_of(saved.weight))


def test_a_checkpoint_of_another_recipe_or_shape() -> None:
    layer, other = nn.Linear(8, 4), nn.Linear(8, 4)
    layer.weight = nn.Parameter(quantized(layer.weight, "row"))
    other.weight = nn.Parameter(quantized(other.weight, "group asymmetric"))
    layer.load_state_dict(other.state_dict())
    assert layer.weight.detach().granularity == PerRow()
    assert bool((values_of(layer.weight) - values_of(other.weight)).abs().max() <= 0.01)
    with pytest.raises(RuntimeError, match="size mismatch"):
        layer.load_state_dict(nn.Linear(9, 4).state_dict())


@pytest.mark.parametrize("recipe", RECIPES)
def test_to_the_meta_device_and_back(recipe: str) -> None:
    layer = nn.Linear(8, 4)
    layer.weight = nn.Parameter(quantized(layer.weight, recipe))
    state = {name: t.clone() for name, t in layer.state_dict().items()}
    layer.to("meta").to_empty(device="cpu")
    assert {t.device.type for t in lamina.leaf_tensors(layer.weight)} == {"cpu"}
    layer.load_state_dict(state)
    assert_same_tensor(layer.weight.detach(), state["weight"])
    layer.to("meta").load_state_dict(state, assign=True)
    assert_same_tensor(layer.weight.detach(), state["weight"])
    layer(torch.randn(2, 8)).sum().backward()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_converted_module_trains_in_its_dtype(recipe: str) -> None:
    layer = nn.Linear(8, 4)
    layer.weight = nn.Parameter(quantized(layer.weight, recipe))
    layer(torch.ones(2, 8)).sum().backward()
    layer.bfloat16()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.bfloat16
    layer.zero_grad()
    layer(torch.ones(2, 8, dtype=torch.bfloat16)).sum().backward()
    before = values_of(layer.weight).clone()
    torch.optim.AdamW(layer.parameters(), lr=0.1).step()
    assert layer.weight.dtype is torch.bfloat16
    assert not torch.equal(values_of(layer.weight), before)


def test_nothing_keeps_a_tensor_alive() -> None:
    gc.disable()
    try:
        q = ScaledInt8Tensor.quantize(torch.randn(4, 8))
        alive, views = weakref.ref(q.qdata), [q[:, 4:], q.t()[1:], q.view(-1)]
        F.linear(torch.ones(2, 8), nn.Parameter(q)).sum().backward()
        del q, views
        assert alive() is None
    finally:
        gc.enable()
