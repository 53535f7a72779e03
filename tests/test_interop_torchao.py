"""To torchao's Int8Tensor and back, to the bit; ``quantize_`` with our configuration."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import lamina
from lamina import (
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    QuantizationError,
    ScaledInt8Config,
    ScaledInt8Tensor,
    from_torchao,
    to_torchao,
)


def _torchao() -> Any:
    """torchao logs the kernels that it can't load while it is imported."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    import torchao.quantization

    return torchao.quantization


ao = _torchao()
SYMMETRIC, ASYMMETRIC = ao.MappingType.SYMMETRIC, ao.MappingType.ASYMMETRIC
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GRANULARITIES: dict[str, tuple[Any, Any]] = {
    "rows": (PerRow(), ao.PerRow()),
    "one": (PerTensor(), ao.PerTensor()),
    "groups": (PerGroup(4), ao.PerGroup(4)),
    "columns": (PerBlock((-1, 1)), ao.PerRow(0)),
    "blocks": (PerBlock((2, 4)), ao.PerBlock((2, 4))),
}
each_granularity = pytest.mark.parametrize("name", GRANULARITIES)
each_mapping = pytest.mark.parametrize("mapping", [SYMMETRIC, ASYMMETRIC], ids=["symmetric", "asymmetric"])
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def int8_kwargs(*args: Any) -> Any:
    """Activations become int8."""
    from torchao.quantization.quantize_.workflows import QuantizeTensorToInt8Kwargs

    return QuantizeTensorToInt8Kwargs(*args)


def theirs(shape: tuple[int, ...] = (6, 8), granularity: Any = None, **more: Any) -> Any:
    dtype = more.pop("dtype", torch.float32)
    return ao.Int8Tensor.from_hp((torch.randn(shape) + 0.5).to(dtype), granularity or ao.PerRow(), **more)


def assert_same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> None:
    assert a is not None
    assert b is not None
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert torch.equal(a, b)


def assert_same_theirs(a: Any, b: Any) -> None:
    assert type(a) is type(b) is ao.Int8Tensor
    assert (a.shape, a.dtype, list(a.block_size)) == (b.shape, b.dtype, list(b.block_size))
    for name in ("qdata", "scale", "zero_point"):
        assert_same_bits(getattr(a, name), getattr(b, name))


def assert_same_ours(a: ScaledInt8Tensor, b: ScaledInt8Tensor) -> None:
    assert type(a) is type(b) is ScaledInt8Tensor
    for field in ScaledInt8Tensor.declaration.fields:
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, torch.Tensor):
            assert_same_bits(x, y)
        else:
            assert x == y, field.name


# From torchao


@each_dtype
@each_mapping
@each_granularity
def test_from_torchao_keeps_every_bit(name: str, mapping: Any, dtype: torch.dtype) -> None:
    granularity, their_granularity = GRANULARITIES[name]
    tensor = theirs(granularity=their_granularity, mapping_type=mapping, dtype=dtype)
    ours = from_torchao(tensor)
    assert (ours.granularity, ours.dtype, ours.activation, ours.rounding) == (granularity, dtype, "float", "nearest")
    assert_same_bits(ours.qdata, tensor.qdata)
    assert_same_bits(ours.scale, tensor.scale)
    if mapping is ASYMMETRIC:
        assert_same_bits(ours.zero_point, tensor.zero_point)
    else:
        assert ours.zero_point is None
    assert_same_bits(ours.dequantize(), tensor.dequantize())
    assert_same_theirs(to_torchao(ours), tensor)


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and the block size that divides it."""
    counts, blocks = draw(shapes), draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))
    shape = tuple(count * block for count, block in zip(counts, blocks, strict=False))
    return shape, tuple(blocks[: len(shape)])


@given(case=cases(), dtype=st.sampled_from(DTYPES), asymmetric=st.booleans(), seed=st.integers(0, 2**20))
def test_any_blocks_go_there_and_back(
    case: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, asymmetric: bool, seed: int
) -> None:
    """Payloads and zero points of all values, -128 too, and scales of many sizes."""
    shape, blocks = case
    source = torch.Generator().manual_seed(seed)
    scales = tuple(size // block for size, block in zip(shape, blocks, strict=True))
    qdata = torch.randint(-128, 128, shape, generator=source, dtype=torch.int8)
    scale = torch.randn(scales, generator=source).exp()
    zero_point = torch.randint(-128, 128, scales, generator=source, dtype=torch.int8) if asymmetric else None
    tensor = ao.Int8Tensor(qdata, scale, list(blocks), dtype, zero_point=zero_point)
    ours = from_torchao(tensor, symmetric=not asymmetric)
    assert_same_bits(ours.dequantize(), tensor.dequantize())
    back = to_torchao(ours)
    assert (list(back.block_size), back.dtype, back.shape) == (list(blocks), dtype, tensor.shape)
    assert_same_bits(back.qdata, qdata)
    assert_same_bits(back.scale, scale)
    assert_same_bits(back.zero_point, torch.zeros_like(scale, dtype=torch.int8) if zero_point is None else zero_point)
    assert_same_ours(from_torchao(back, symmetric=not asymmetric), ours)


def test_it_has_memory_of_its_own() -> None:
    tensor = theirs(mapping_type=ASYMMETRIC)
    before = tensor.dequantize()
    ours = from_torchao(tensor)
    back = to_torchao(ours)
    ours.mul_(0)
    assert_same_bits(tensor.dequantize(), before)
    assert_same_bits(back.dequantize(), before)


@pytest.mark.parametrize("cut", [lambda t: t[1:3], lambda t: t[:, 4:], lambda t: t[0]], ids=["rows", "columns", "row"])
@each_mapping
@pytest.mark.parametrize("granularity", [ao.PerRow(), ao.PerGroup(4)], ids=str)
def test_slices_that_torchao_makes(granularity: Any, mapping: Any, cut: Callable[[Any], Any]) -> None:
    tensor = cut(theirs(granularity=granularity, mapping_type=mapping))
    assert_same_bits(from_torchao(tensor).dequantize(), tensor.dequantize())


def test_parameters_and_what_they_are_made_of() -> None:
    parameter = nn.Parameter(theirs(), requires_grad=True)
    ours = from_torchao(parameter)
    assert type(ours) is ScaledInt8Tensor
    assert not ours.requires_grad
    assert_same_theirs(to_torchao(nn.Parameter(ours)), parameter.detach())


def test_whether_it_stays_symmetric_can_be_chosen() -> None:
    tensor, shifted = theirs(), theirs(mapping_type=ASYMMETRIC)
    assert from_torchao(tensor).zero_point is None
    assert_same_bits(from_torchao(tensor, symmetric=False).zero_point, tensor.zero_point)
    tensor.zero_point = None
    assert from_torchao(tensor).zero_point is None
    assert_same_bits(from_torchao(tensor, symmetric=False).dequantize(), tensor.dequantize())
    with pytest.raises(QuantizationError, match="symmetric=True, but"):
        from_torchao(shifted, symmetric=True)


@pytest.mark.parametrize("wrong", ["no", 1, 0, torch.tensor(True)], ids=str)
def test_symmetric_is_a_flag(wrong: Any) -> None:
    with pytest.raises(QuantizationError, match=r"symmetric = .* is neither True nor False"):
        from_torchao(theirs(), symmetric=wrong)
    with pytest.raises(QuantizationError, match=r"symmetric = .* is neither True nor False"):
        ScaledInt8Config(symmetric=wrong)


def test_how_it_rounds_later_can_be_chosen() -> None:
    assert from_torchao(theirs(), rounding="stochastic").rounding == "stochastic"
    with pytest.raises(QuantizationError, match="'upwards' is none of"):
        from_torchao(theirs(), rounding="upwards")


def test_on_meta_nothing_is_read() -> None:
    tensor = theirs((6, 8))
    nowhere = ao.Int8Tensor(
        tensor.qdata.to("meta"), tensor.scale.to("meta"), [1, 8], torch.float32, tensor.zero_point.to("meta")
    )
    ours = from_torchao(nowhere)
    assert ours.is_meta
    assert ours.zero_point is not None
    assert from_torchao(nowhere, symmetric=True).zero_point is None
    assert to_torchao(ours).qdata.is_meta


def test_activations_that_torchao_quantizes() -> None:
    for granularity in (ao.PerRow(), ao.granularity.PerToken()):
        tensor = theirs(act_quant_kwargs=int8_kwargs(granularity))
        assert from_torchao(tensor).activation == "int8"
        assert from_torchao(tensor, activation="int16").activation == "int16"
    back = to_torchao(from_torchao(tensor))
    assert back.act_quant_kwargs == int8_kwargs(ao.PerRow())
    for activation in ("float", "int16", "auto"):
        assert to_torchao(from_torchao(tensor, activation=activation)).act_quant_kwargs is None


def test_int8_products_agree_with_torchaos() -> None:
    x, w = torch.randn(5, 64), torch.randn(16, 64)
    ours = ScaledInt8Tensor.quantize(w, activation="int8")
    # Both round activations to 8 bits, torchao to 1/127.5 of the largest: half a step each, in 64 terms.
    torch.testing.assert_close(F.linear(x, ours), F.linear(x, to_torchao(ours)), rtol=0, atol=0.5)


UNKEPT: dict[str, tuple[Callable[[], Any], str]] = {
    "per tensor": (lambda: {"act_quant_kwargs": int8_kwargs(ao.PerTensor())}, "activation="),
    "asymmetric": (lambda: {"act_quant_kwargs": int8_kwargs(ao.PerRow(), ASYMMETRIC)}, "activation="),
    "of another type": (lambda: {"act_quant_kwargs": object()}, "activation="),
    "static scale": (lambda: {"act_quant_scale": torch.ones(1, 1)}, "activation='int8'"),
    "static zero point": (lambda: {"act_quant_zero_point": torch.ones(1, 1, dtype=torch.int8)}, "activation='int8'"),
}


@pytest.mark.parametrize("name", UNKEPT)
def test_activations_that_cannot_be_kept_are_refused(name: str) -> None:
    options, advice = UNKEPT[name]
    tensor = theirs()
    for attribute, value in options().items():
        setattr(tensor, attribute, value)
    with pytest.raises(QuantizationError, match=f"act_quant_.*no equal.*{advice}"):
        from_torchao(tensor)
    assert from_torchao(tensor, activation="float").activation == "float"


def test_a_scale_for_activations_is_refused_whatever_is_chosen() -> None:
    tensor = theirs()
    tensor.act_pre_scale = torch.ones(8)
    for activation in (None, "float"):
        with pytest.raises(QuantizationError, match=r"act_pre_scale, .*no equal.*multiply it into the weight"):
            from_torchao(tensor, activation=activation)


def test_a_slice_inside_a_group_is_refused() -> None:
    tensor = theirs(granularity=ao.PerGroup(4))
    with pytest.raises(QuantizationError, match=r"slice by whole blocks|slices inside a block"):
        from_torchao(tensor[:, 2:8])
    with pytest.raises(QuantizationError, match=r"slice by whole blocks|slices inside a block"):
        from_torchao(tensor[:, 1:5])


@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_scales_of_other_dtypes(scale_dtype: torch.dtype) -> None:
    tensor = theirs()
    tensor.scale = torch.rand(6, 1).to(scale_dtype) + 1
    if scale_dtype is torch.float64:
        tensor.scale += 1e-12
        with pytest.raises(QuantizationError, match=r"scale is torch\.float64, with values that torch\.float32"):
            from_torchao(tensor)
    else:
        assert_same_bits(from_torchao(tensor).scale, tensor.scale.float())


def test_zero_points_of_other_dtypes() -> None:
    tensor = theirs()
    tensor.zero_point = torch.full((6, 1), 5)
    assert_same_bits(from_torchao(tensor).zero_point, torch.full((6, 1), 5, dtype=torch.int8))
    tensor.zero_point = torch.full((6, 1), 200)
    with pytest.raises(QuantizationError, match=r"zero_point is torch\.int64, with values that torch\.int8"):
        from_torchao(tensor)


@pytest.mark.parametrize("other", [torch.ones(2, 2), ScaledInt8Tensor.quantize(torch.ones(2, 2)), None], ids=str)
def test_what_is_no_int8tensor(other: Any) -> None:
    with pytest.raises(QuantizationError, match=r"takes an Int8Tensor \(Int8Tensor\.from_hp makes one\), got a "):
        from_torchao(other)


# To torchao


@each_dtype
@pytest.mark.parametrize("symmetric", [True, False])
@each_granularity
def test_to_torchao_keeps_every_bit(name: str, symmetric: bool, dtype: torch.dtype) -> None:
    granularity, their_granularity = GRANULARITIES[name]
    values = torch.randn(6, 8).to(dtype)
    ours = ScaledInt8Tensor.quantize(values, granularity, symmetric=symmetric)
    tensor = to_torchao(ours)
    like = ao.Int8Tensor.from_hp(values, their_granularity)
    assert (list(tensor.block_size), tensor.dtype) == (list(like.block_size), dtype)
    assert_same_bits(tensor.dequantize(), ours.dequantize())
    assert_same_ours(from_torchao(tensor, symmetric=symmetric), ours)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "t": lambda w: w.t(),
    "slice": lambda w: w[1:3],
    "step": lambda w: w[::2],
    "part of rows": lambda w: w[:, 4:],
    "select": lambda w: w[2],
    "expand": lambda w: w.expand(2, 6, 8),
    "view": lambda w: w.view(2, 3, 8),
    "cat": lambda w: torch.cat([w, w]),
    "stack": lambda w: torch.stack([w, w]),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("symmetric", [True, False])
@each_granularity
def test_views_too(name: str, symmetric: bool, view: str) -> None:
    whole = ScaledInt8Tensor.quantize(torch.randn(6, 8), GRANULARITIES[name][0], symmetric=symmetric)
    try:
        ours = VIEWS[view](whole)
    except lamina.GridError:
        assert (name, view) in {("blocks", "slice"), ("blocks", "step")}
        return
    if isinstance(ours, ScaledInt8Tensor):  # else plain: torch can't say it by one scale a block
        assert_same_bits(to_torchao(ours).dequantize(), ours.dequantize())
        assert to_torchao(ours).qdata.is_contiguous()


def test_a_linear_layer_computes_the_same_over_there() -> None:
    x = torch.randn(5, 8)
    for granularity in (PerRow(), PerTensor(), PerGroup(4)):
        ours = ScaledInt8Tensor.quantize(torch.randn(6, 8), granularity)
        torch.testing.assert_close(F.linear(x, to_torchao(ours)), F.linear(x, ours.dequantize()))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: ScaledInt8Tensor.quantize(torch.ones(2, 2).double()), "float64.*tensor.float()"),
    "empty": (lambda: ScaledInt8Tensor.quantize(torch.ones(0, 2)), r"without elements, of shape \(0, 2\)"),
    "int8 by groups": (
        lambda: ScaledInt8Tensor.quantize(torch.ones(2, 8), PerGroup(4), activation="int8"),
        r"one scale per row or tensor, not by PerGroup\(size=4\)",
    ),
    "plain": (lambda: torch.ones(2, 2), "takes a ScaledInt8Tensor"),
    "another layer": (
        lambda: lamina.LoggingTensor(ScaledInt8Tensor.quantize(torch.ones(2, 2))),
        "takes a ScaledInt8Tensor .*got a LoggingTensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torchao_has_no_tensor_for(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(QuantizationError, match=message):
        to_torchao(make())


# A model


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8, bias=False), nn.Linear(8, 4))


def test_quantize_makes_our_weights() -> None:
    net = model()
    values = [layer.weight.detach().clone() for layer in (net[0], net[2], net[3])]
    biases = [net[0].bias, net[3].bias]
    ao.quantize_(net, ScaledInt8Config())
    assert lamina.wrapped_parameters(net) == dict.fromkeys(["0.weight", "2.weight", "3.weight"], ScaledInt8Tensor)
    for layer, value in zip((net[0], net[2], net[3]), values, strict=True):
        assert_same_ours(layer.weight.detach(), ScaledInt8Tensor.quantize(value))
        assert layer.weight.requires_grad
    assert all(now is before for now, before in zip((net[0].bias, net[3].bias), biases, strict=True))
    lamina.assert_wrapped(net)


CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "one scale": {"granularity": PerTensor()},
    "groups": {"granularity": PerGroup(4)},
    "asymmetric": {"symmetric": False},
    "stochastic": {"rounding": "stochastic"},
    "int8": {"activation": "int8"},
    "everything": {"granularity": PerGroup(4), "symmetric": False, "rounding": "stochastic", "activation": "int16"},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_recipe_is_that_of_the_configuration(name: str) -> None:
    net, config = model(), ScaledInt8Config(**CONFIGS[name])
    before = net[0].weight.detach().clone()
    ao.quantize_(net, config)
    weight = net[0].weight
    assert (weight.granularity, weight.rounding, weight.activation) == (
        config.granularity,
        config.rounding,
        config.activation,
    )
    assert (weight.zero_point is None) is config.symmetric
    assert float((weight.detach().dequantize() - before).abs().max()) <= float(weight.scale.max())
    wanted = F.linear(torch.ones(3, 8), weight.detach().dequantize(), net[0].bias)
    torch.testing.assert_close(net[0](torch.ones(3, 8)), wanted, rtol=0, atol=0.1)


@each_dtype
def test_models_in_half_precision(dtype: torch.dtype) -> None:
    net = model().to(dtype)
    ao.quantize_(net, ScaledInt8Config())
    assert net[0].weight.dtype is dtype
    assert net(torch.ones(3, 8, dtype=dtype)).dtype is dtype


def test_a_filter_chooses_the_modules() -> None:
    net = nn.Sequential(OrderedDict(a=nn.Linear(8, 8), b=nn.Linear(8, 8), table=nn.Embedding(5, 8)))
    ao.quantize_(net, ScaledInt8Config(), filter_fn=lambda _, name: name in ("b", "table"))
    assert set(lamina.wrapped_parameters(net)) == {"b.weight", "table.weight"}
    assert torch.equal(net.table(torch.tensor([3])), net.table.weight.detach().dequantize()[3:4])


def test_names_choose_parameters() -> None:
    net = nn.Sequential(OrderedDict(a=nn.Linear(8, 8), b=nn.Linear(8, 8), rnn=nn.GRU(8, 8)))
    chosen = OrderedDict(
        [
            ("a", ScaledInt8Config(symmetric=False)),
            ("b.bias", ScaledInt8Config()),
            ("rnn.weight_ih_l0", ScaledInt8Config(PerGroup(4))),
        ]
    )
    ao.quantize_(net, ao.FqnToConfig(chosen), filter_fn=None)
    assert set(lamina.wrapped_parameters(net)) == {"a.weight", "b.bias", "rnn.weight_ih_l0"}
    assert net.a.weight.zero_point is not None
    assert net.rnn.weight_ih_l0.granularity == PerGroup(4)


def test_a_module_without_the_parameter() -> None:
    with pytest.raises(
        QuantizationError, match=r"'weight' of a Sequential, which has no such parameter \(it has none\)"
    ):
        ao.quantize_(model(), ScaledInt8Config(), filter_fn=lambda _, name: name == "")
    attention = nn.Sequential(nn.MultiheadAttention(8, 2))
    with pytest.raises(QuantizationError, match=r"no such parameter \(it has in_proj_weight, in_proj_bias\)"):
        ao.quantize_(attention, ScaledInt8Config(), filter_fn=lambda _, name: name == "0")


def test_ties_and_optimizers_go_on() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(self.embedding(tokens))
            return logits

    net, tokens = Tied(), torch.arange(12)
    optimizer, parameter = torch.optim.AdamW(net.parameters(), lr=0.05), net.head.weight
    ao.quantize_(net, ScaledInt8Config(), filter_fn=lambda module, _: hasattr(module, "weight"))
    assert net.head.weight is net.embedding.weight is parameter
    assert isinstance(parameter, ScaledInt8Tensor)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(tokens), tokens.roll(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_quantizing_twice_changes_nothing() -> None:
    net = model()
    ao.quantize_(net, ScaledInt8Config(symmetric=False))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    ao.quantize_(net, ScaledInt8Config())
    for name, parameter in net.named_parameters():
        if isinstance(parameter, ScaledInt8Tensor):
            assert_same_ours(parameter.detach(), before[name])


def test_frozen_weights_stay_frozen() -> None:
    net = model().requires_grad_(False)
    ao.quantize_(net, ScaledInt8Config())
    assert not any(p.requires_grad for p in net.parameters())


def test_weights_of_torchao_are_converted_not_quantized_again() -> None:
    net = model()
    ao.quantize_(net, ao.Int8WeightOnlyConfig(set_inductor_config=False))
    wanted, x = (
        {n: p.dequantize() for n, p in net.named_parameters() if isinstance(p, ao.Int8Tensor)},
        torch.randn(3, 8),
    )
    assert len(wanted) == 3
    with pytest.raises(QuantizationError, match=r"is a torchao Int8Tensor already.*lamina.from_torchao"):
        ao.quantize_(net, ScaledInt8Config())
    out = net(x)
    for layer in (net[0], net[2], net[3]):
        layer.weight = nn.Parameter(from_torchao(layer.weight))
    assert set(lamina.wrapped_parameters(net)) == set(wanted)
    for name, values in wanted.items():
        assert_same_bits(net.get_parameter(name).detach().dequantize(), values)
    torch.testing.assert_close(net(x), out)


def test_a_transformer_trains_and_generates() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = nn.Sequential(
        OrderedDict(table=nn.Embedding(11, 16), body=nn.TransformerEncoder(layer, 2), head=nn.Linear(16, 11))
    )
    reference = copy.deepcopy(net)
    ao.quantize_(net, ScaledInt8Config(PerGroup(8), symmetric=False, rounding="stochastic"))
    linear = [name for name, module in net.named_modules() if type(module) is nn.Linear]
    assert len(linear) == 5  # in torch's attention the projection out is a class of its own, which torchao leaves alone
    assert set(lamina.wrapped_parameters(net)) == {f"{name}.weight" for name in linear}
    tokens = torch.randint(0, 11, (4, 9))
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(tokens), reference.eval()(tokens), rtol=0, atol=0.1)
    optimizer, losses = torch.optim.AdamW(net.train().parameters(), lr=1e-2), []
    for _ in range(25):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin.eval()(tokens), net.eval()(tokens))


# The configuration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granularity": "row"}, "granularity = 'row'"),
        ({"rounding": "up"}, "rounding = 'up'"),
        ({"activation": "int4"}, "activation = 'int4'"),
        ({"granularity": ao.PerRow(0)}, r"depends on the number of dims. Write lamina\.PerBlock"),
        ({"granularity": ao.PerAxis(0)}, r"depends on the number of dims. Write lamina\.PerBlock"),
    ],
)
def test_a_wrong_configuration_fails_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        ScaledInt8Config(**options)


@pytest.mark.parametrize(
    ("given_one", "wanted"),
    [
        (ao.PerRow(), PerRow()),
        (ao.granularity.PerToken(), PerRow()),
        (ao.PerTensor(), PerTensor()),
        (ao.PerGroup(4), PerGroup(4)),
        (PerBlock((2, 4)), PerBlock((2, 4))),
    ],
    ids=str,
)
def test_torchaos_granularities_are_taken(given_one: Any, wanted: Any) -> None:
    assert ScaledInt8Config(given_one).granularity == wanted
    assert ScaledInt8Config(given_one) == ScaledInt8Config(wanted)


def test_a_weight_that_groups_do_not_divide_stays() -> None:
    net = nn.Sequential(nn.Linear(10, 4))
    with pytest.raises(lamina.GridError, match="groups of 4 don't divide dim 1"):
        ao.quantize_(net, ScaledInt8Config(PerGroup(4)))
    assert type(net[0].weight) is nn.Parameter


def test_configurations_of_a_subclass() -> None:
    class Ours(ScaledInt8Config):
        pass

    net = model()
    ao.quantize_(net, Ours(symmetric=False))
    assert net[0].weight.zero_point is not None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_configurations_are_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    config = ScaledInt8Config(PerGroup(4), symmetric=False)
    assert copied(config) == config
    assert hash(copied(config)) == hash(config)


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)


def test_torchao_is_imported_at_the_first_use_without_a_word(tmp_path: Path) -> None:
    code = """
import logging, pickle, sys
import lamina
from lamina import ScaledInt8Config, from_torchao, to_torchao
assert "torchao" not in sys.modules
config = ScaledInt8Config()
assert "torchao" in sys.modules
assert logging.getLogger("torchao").isEnabledFor(logging.WARNING)
print(pickle.dumps(config).hex())
"""
    ran = run(code, tmp_path)
    assert ran.stderr == ""
    unpickled = f"""
import pickle
config = pickle.loads(bytes.fromhex({ran.stdout.strip()!r}))
import torch, torchao.quantization
net = torch.nn.Sequential(torch.nn.Linear(4, 4))
torchao.quantization.quantize_(net, config)
print(type(net[0].weight).__name__)
"""
    assert run(unpickled, tmp_path).stdout == "ScaledInt8Tensor\n"


def test_parameters_of_a_torchao_model_are_exchanged_by_wrap_parameters() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    ao.quantize_(model, ao.Int8WeightOnlyConfig(set_inductor_config=False))
    model[0].weight.tag = "a user's"
    before = [model[0].weight.dequantize(), model[1].weight.dequantize()]
    lamina.wrap_parameters(model, lamina.from_torchao, where=lambda name, *_: name.endswith("weight"))
    assert type(model[0].weight) is lamina.ScaledInt8Tensor
    assert model[0].weight.tag == "a user's"
    assert not hasattr(model[1].weight, "act_quant_kwargs")
    assert all(torch.equal(layer.weight.dequantize(), old) for layer, old in zip(model, before, strict=True))
