"""Modules of torch.nn with int8 weights: outputs and gradients are those of the decoded weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from int8_recipes import RECIPES, assert_same_gradients, decoded_copy, quantize_weights, quantized, values_of
from torch import nn

import lamina
from lamina import ScaledInt8Tensor

MODES = [torch.no_grad, torch.inference_mode, torch.enable_grad]
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(16, 8), (2, 3, 16)),
    "Linear of a vector": (lambda: nn.Linear(16, 8, bias=False), (16,)),
    "Conv1d": (lambda: nn.Conv1d(4, 8, 4), (2, 4, 9)),
    "Conv2d groups": (lambda: nn.Conv2d(4, 8, 4, padding=1, groups=2), (2, 4, 9, 9)),
    "Conv3d": (lambda: nn.Conv3d(4, 8, 4), (2, 4, 5, 5, 5)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 8, 4), (2, 4, 9)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 8, 4, 2), (2, 4, 9, 9)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 8, 4), (2, 4, 3, 3, 3)),
    "RNN": (lambda: nn.RNN(8, 16), (5, 3, 8)),
    "LSTM": (lambda: nn.LSTM(8, 16, num_layers=2, bidirectional=True), (5, 3, 8)),
    "GRU": (lambda: nn.GRU(8, 16), (5, 3, 8)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 16), (3, 8)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (3, 5, 16)),
}
ATTENTIONS: dict[str, dict[str, Any]] = {
    "one projection": {},
    "without bias": {"bias": False},
    "three projections": {"kdim": 8, "vdim": 8},
    "bias_kv": {"add_bias_kv": True},
}
PRODUCTS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "bmm": lambda w, x: torch.bmm(x, w.transpose(1, 2)),
    "matmul": lambda w, x: x @ w.mT,
    "weight first": lambda w, x: w @ x.mT,
    "einsum": lambda w, x: torch.einsum("bij,bkj->bik", x, w),
    "baddbmm": lambda w, x: torch.baddbmm(torch.ones(3, 5, 4), x, w.transpose(1, 2)),
    "linear by experts": lambda w, x: torch.stack([F.linear(x[0], expert) for expert in w]),
    "tensordot": lambda w, x: torch.tensordot(x, w, dims=([2], [2])),
}


def first_of(out: Any) -> torch.Tensor:
    return first_of(out[0]) if isinstance(out, tuple) else out


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_that_of_the_values(name: str, recipe: str) -> None:
    make, shape = LAYERS[name]
    layer, x = quantize_weights(make(), recipe), torch.randn(shape)
    plain = decoded_copy(layer)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outs = [first_of(module(each)) for module, each in zip((layer, plain), inputs, strict=True)]
    assert type(outs[0]) is torch.Tensor
    torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-5)
    for out in outs:
        out.square().sum().backward()
    assert_same_gradients(layer, plain)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)
    for mode in MODES:
        with mode():
            torch.testing.assert_close(first_of(layer(x)), first_of(plain(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("mode", MODES)
def test_the_encoder_in_eval(mode: Callable[[], Any], recipe: str) -> None:
    """Under ``no_grad`` torch takes a fast path of one operator, which passes by ``linear``."""
    layer = quantize_weights(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), recipe).eval()
    plain, x, padding = decoded_copy(layer).eval(), torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    entry = lamina.op_table(ScaledInt8Tensor)[torch.ops.aten._transformer_encoder_layer_fwd.default]
    before = entry.hits
    with mode():
        torch.testing.assert_close(layer(x), plain(x), rtol=1e-4, atol=1e-5)
        got, wanted = (m(x, src_key_padding_mask=padding)[~padding] for m in (layer, plain))
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert (entry.hits > before) is (mode is not torch.enable_grad)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_in_eval(name: str, recipe: str) -> None:
    options = ATTENTIONS[name]
    layer = quantize_weights(nn.MultiheadAttention(16, 4, batch_first=True, **options), recipe).eval()
    plain, x = decoded_copy(layer).eval(), torch.randn(3, 5, 16)
    key = torch.randn(3, 5, 8) if "kdim" in options else x
    for mode in MODES:
        for weights in (True, False):
            with mode():
                got, wanted = (m(x, key, key, need_weights=weights) for m in (layer, plain))
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_three_dims(name: str, recipe: str) -> None:
    product, x = PRODUCTS[name], torch.randn(3, 5, 8)
    w = nn.Parameter(quantized(torch.randn(3, 4, 8), recipe))
    values = values_of(w).requires_grad_()
    got, wanted = product(w, x), product(values, x)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    got.square().sum().backward()
    wanted.square().sum().backward()
    assert type(w.grad) is torch.Tensor
    torch.testing.assert_close(w.grad, values.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("mode", "sparse"), [("sum", False), ("mean", False), ("max", False), ("sum", True)])
def test_bags_of_embeddings(mode: str, sparse: bool, recipe: str) -> None:
    bag = quantize_weights(nn.EmbeddingBag(10, 8, mode=mode, sparse=sparse), recipe)
    plain, index, offsets = decoded_copy(bag), torch.tensor([1, 2, 1, 9]), torch.tensor([0, 2])
    outs = [m(index, offsets) for m in (bag, plain)]
    torch.testing.assert_close(*outs)
    for out in outs:
        out.square().sum().backward()
    assert type(bag.weight.grad) is torch.Tensor
    assert bag.weight.grad.is_sparse is sparse
    torch.testing.assert_close(bag.weight.grad.to_dense(), plain.weight.grad.to_dense(), rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(bag(index, offsets), plain(index, offsets))


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_embedding_with_a_padding_row_and_a_largest_norm(recipe: str) -> None:
    table = quantize_weights(nn.Embedding(10, 8, padding_idx=2, max_norm=1.0, scale_grad_by_freq=True), recipe)
    plain, index, factor = decoded_copy(table), torch.tensor([1, 2, 1, 9]), torch.randn(4, 8)
    out = table(index)  # writes the rows that are too long
    assert bool((out.norm(dim=1) <= 1.03).all())  # a rounding of each of 8 values
    (out * factor).sum().backward()
    (plain(index) * factor).sum().backward()
    torch.testing.assert_close(table.weight.grad, plain.weight.grad)


class Tied(nn.Module):
    def __init__(self, recipe: str) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        self.table.weight = self.head.weight = nn.Parameter(quantized(self.table.weight, recipe))

    def forward(self, index: torch.Tensor) -> Any:
        return self.head(self.table(index).relu())


@pytest.mark.parametrize("recipe", RECIPES)
def test_tied_weights_stay_tied(recipe: str) -> None:
    model, index = Tied(recipe), torch.tensor([1, 2, 1, 9])
    values = values_of(model.table.weight).requires_grad_()
    model(index).square().sum().backward()
    F.linear(F.embedding(index, values).relu(), values).square().sum().backward()
    torch.testing.assert_close(model.table.weight.grad, values.grad, rtol=1e-4, atol=1e-4)
    copied = copy.deepcopy(model).half()
    assert copied.table.weight is copied.head.weight
    assert copied.table.weight.dtype is torch.float16
    assert type(copied.table.weight) is ScaledInt8Tensor
