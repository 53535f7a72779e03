"""A ScaledInt8 parameter inside a module: saved, loaded, copied, converted, moved, nested, printed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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
