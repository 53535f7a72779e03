"""Training ScaledInt8 parameters: every write requantizes into the memory of the parameter, by any optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from int8_recipes import RECIPES, assert_same_gradients, decoded_copy, quantize_weights, quantized, values_of
from torch import nn, optim

import lamina
from lamina import ScaledInt8Tensor

Make = Callable[[list[nn.Parameter]], optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "SGD dampening": lambda p: optim.SGD([{"params": p}], lr=0.1, dampening=0.1, momentum=0.5),
    "SGD foreach": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, foreach=True),
    "SGD fused": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, fused=True),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-2),
    "AdamW single": lambda p: optim.AdamW(p, lr=1e-2, foreach=False),
    "AdamW foreach": lambda p: optim.AdamW(p, lr=1e-2, foreach=True),
    "AdamW fused": lambda p: optim.AdamW(p, lr=1e-2, fused=True),
    "AdamW amsgrad": lambda p: optim.AdamW(p, lr=1e-2, amsgrad=True, weight_decay=0.1),
    "AdamW tensor lr": lambda p: optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False),
    "Adam": lambda p: optim.Adam(p, lr=1e-2),
    "Adagrad": lambda p: optim.Adagrad(p, lr=1e-1),
    "Adagrad foreach": lambda p: optim.Adagrad(p, lr=1e-1, foreach=True),
    "Adadelta": lambda p: optim.Adadelta(p, lr=10.0),
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-1),
    "Adamax": lambda p: optim.Adamax(p, lr=1e-2),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=1e-2),
    "RAdam": lambda p: optim.RAdam(p, lr=5e-2),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-2, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p, lr=1e-2),
    "Rprop foreach": lambda p: optim.Rprop(p, lr=1e-2, foreach=True),
}


def make_model(*, quantized: bool) -> nn.Sequential:
    """16-32-4, the same values each time; the plain one holds what the quantized one stands for."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    for layer in (model[0], model[2]):
        weight = ScaledInt8Tensor.quantize(layer.weight.detach())
        layer.weight = nn.Parameter(weight if quantized else weight.dequantize())
    return model


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(4)
    x = torch.randn(64, 16)
    return x, x[:, :4].argmax(1)


def weights_of(model: nn.Sequential) -> list[Any]:
    return [model[0].weight, model[2].weight]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_it(name: str) -> None:
    model, (x, y) = make_model(quantized=True), make_batch()
    optimizer, weights = OPTIMIZERS[name](list(model.parameters())), weights_of(model)
    payloads = [w.qdata.clone() for w in weights]
    leaves = [(w.qdata.data_ptr(), w.scale.data_ptr()) for w in weights]
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses
    assert [type(w.grad) for w in model.parameters()] == [torch.Tensor] * 4
    assert [type(w) for w in weights_of(model)] == [ScaledInt8Tensor] * 2
    assert [(w.qdata.data_ptr(), w.scale.data_ptr()) for w in weights] == leaves
    assert not any(torch.equal(w.qdata, old) for w, old in zip(weights, payloads, strict=True))
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    assert {type(t) for t in states} <= {torch.Tensor}


@pytest.mark.parametrize("name", ["SGD", "SGD fused", "SGD foreach", "AdamW fused", "Adagrad", "Adafactor"])
def test_one_step_is_the_plain_step_requantized(name: str) -> None:
    """What the optimizer does to the dequantized parameter, then one rounding: half a step of the new scale. An
    optimizer that writes twice (weight decay, then the update) rounds twice."""
    quantized, plain, (x, y) = make_model(quantized=True), make_model(quantized=False), make_batch()
    for model in (quantized, plain):
        optimizer = OPTIMIZERS[name](list(model.parameters()))
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    for got, wanted in zip(weights_of(quantized), weights_of(plain), strict=True):
        error = (got.detach().dequantize() - wanted.detach()).abs()
        assert bool((error <= 2 * (0.5 + 1e-2) * got.scale).all())  # 1e-2: the scales of the two roundings differ
    for got, wanted in zip((quantized[0].bias, quantized[2].bias), (plain[0].bias, plain[2].bias), strict=True):
        assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6)  # gradients of 64 terms, summed in another order


def test_a_step_of_sgd_is_bit_exact() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5, 7)))
    before, grad = p.detach().clone(), torch.randn(5, 7)
    p.grad = grad.clone()
    optim.SGD([p], lr=0.5).step()
    wanted = before.requantize(before.dequantize().add(grad, alpha=-0.5))
    assert torch.equal(p.detach().qdata, wanted.qdata)
    assert torch.equal(p.detach().scale, wanted.scale)


@pytest.mark.parametrize("other", ["AdamW foreach", "AdamW single"])
def test_foreach_and_single_agree(other: str) -> None:
    results = []
    for name in ("AdamW", other):
        model, (x, y) = make_model(quantized=True), make_batch()
        optimizer = OPTIMIZERS[name](list(model.parameters()))
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        results.append([w.detach().clone() for w in weights_of(model)])
    for a, b in zip(*results, strict=True):
        # the two order their float operations differently: a tie may round to the other side
        assert int((a.qdata.int() - b.qdata.int()).abs().max()) <= 1
        assert torch.allclose(a.scale, b.scale, rtol=1e-5)


def test_training_comes_close_to_plain_training() -> None:
    final = []
    for is_int8 in (True, False):
        model, (x, y) = make_model(quantized=is_int8), make_batch()
        optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        for _ in range(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        final.append(loss.item())
    assert final[0] < 2 * final[1] + 0.05, final


def test_gradients_accumulate_and_clip() -> None:
    model, (x, y) = make_model(quantized=True), make_batch()
    F.cross_entropy(model(x), y).backward()
    first = weights_of(model)[0].grad.clone()
    F.cross_entropy(model(x), y).backward()
    assert torch.equal(weights_of(model)[0].grad, 2 * first)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert norm > 0.1
    total = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert total.item() == pytest.approx(0.1, rel=1e-4)


def test_a_frozen_weight_gets_no_gradient() -> None:
    model, (x, y) = make_model(quantized=True), make_batch()
    model[0].weight.requires_grad_(False)
    F.cross_entropy(model(x), y).backward()
    assert model[0].weight.grad is None
    assert type(model[2].weight.grad) is torch.Tensor


def test_gradients_through_checkpointing_are_the_same() -> None:
    (x, y), grads = make_batch(), []
    for reentrant in (None, False, True):
        model = make_model(quantized=True)
        inputs = x.clone().requires_grad_()
        out = (
            model(inputs)
            if reentrant is None
            else torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=reentrant)
        )
        F.cross_entropy(out, y).backward()
        grads.append([p.grad for p in model.parameters()])
    for other in grads[1:]:
        assert all(torch.equal(a, b) for a, b in zip(grads[0], other, strict=True))


def test_from_plain_is_differentiable_and_quantize_is_not() -> None:
    values, factor = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    q = ScaledInt8Tensor.from_plain(values)
    assert q.requires_grad
    (q.dequantize() * factor).sum().backward()
    assert values.grad is not None
    assert type(values.grad) is torch.Tensor
    assert torch.equal(values.grad, factor)  # straight through: as if rounding were the identity
    assert not ScaledInt8Tensor.quantize(values.detach()).requires_grad


def test_a_fake_quantized_layer_trains_its_plain_weight() -> None:
    weight, (x, y) = torch.randn(4, 16, requires_grad=True), make_batch()
    F.cross_entropy(F.linear(x, ScaledInt8Tensor.from_plain(weight)), y).backward()
    reference = ScaledInt8Tensor.quantize(weight.detach()).dequantize().requires_grad_()
    F.cross_entropy(F.linear(x, reference), y).backward()
    assert weight.grad is not None
    assert reference.grad is not None
    # 16 and 64 terms of at most 1: (64 + 16) 2^-24 each way
    assert torch.allclose(weight.grad, reference.grad, rtol=1e-4, atol=1e-5)


def test_the_backward_of_dequantize_reaches_a_parameter() -> None:
    p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(3, 5)))
    p.dequantize().pow(2).sum().backward()
    assert p.grad is not None
    assert type(p.grad) is torch.Tensor
    assert torch.equal(p.grad, 2 * p.detach().dequantize())


def test_training_under_a_transparent_layer() -> None:
    """LoggingTensor around the parameter: the rules of the inner type run, the results are the same."""
    (x, y), losses = make_batch(), []
    table, ops = lamina.op_table(ScaledInt8Tensor), (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    for layers in (0, 1, 2):
        model = make_model(quantized=True)
        for layer in (model[0], model[2]):
            weight: torch.Tensor = layer.weight.detach()
            for _ in range(layers):
                weight = lamina.LoggingTensor(weight)
            layer.weight = nn.Parameter(weight)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        before = [table[op].hits for op in ops]
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        assert [table[op].hits - n for op, n in zip(ops, before, strict=True)] == [6, 3]
        losses.append(loss.item())
    assert losses[0] == losses[1] == losses[2]


def pair(recipe: str) -> tuple[Any, Any, torch.Tensor]:
    model = quantize_weights(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), recipe)
    return model, decoded_copy(model), torch.randn(6, 8)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(2, 64), (2, 3, 64), (64,)])
@pytest.mark.parametrize("bias", [True, False])
def test_backward_saves_the_payload_and_no_copy_of_the_values(bias: bool, shape: tuple[int, ...], recipe: str) -> None:
    layer, saved = quantize_weights(nn.Linear(64, 48, bias=bias), recipe), []

    def pack(tensor: Any) -> Any:
        saved.extend(lamina.leaf_tensors(tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(torch.randn(shape, requires_grad=True))
    weight = layer.weight
    payloads = [leaf for leaf in saved if leaf.dtype is torch.int8 and leaf.numel() == weight.numel()]
    assert {leaf.data_ptr() for leaf in payloads} == {weight.qdata.data_ptr()}
    own = {leaf.untyped_storage().data_ptr() for leaf in lamina.leaf_tensors(weight)}
    others = {leaf.untyped_storage().data_ptr(): leaf.untyped_storage().nbytes() for leaf in saved}
    # besides the parameter's own memory, no more than the inputs
    assert sum(size for place, size in others.items() if place not in own) <= 4 * torch.Size(shape).numel()


@pytest.mark.parametrize("recipe", RECIPES)
def test_autocast(recipe: str) -> None:
    model, plain, x = pair(recipe)
    outs = []
    for m in (model, plain):
        with torch.autocast("cpu", torch.bfloat16):
            outs.append(m(x))
        outs[-1].float().square().sum().backward()
    assert outs[0].dtype is torch.bfloat16
    torch.testing.assert_close(*outs, rtol=0.03, atol=0.03)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert (type(p.grad), p.grad.dtype) == (torch.Tensor, torch.float32)
        torch.testing.assert_close(p.grad, q.grad, rtol=0.05, atol=0.05 * q.grad.abs().max().item())


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradient_scaler_skips_a_step_with_infinities(recipe: str) -> None:
    model, _, x = pair(recipe)
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=1024.0), optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    before = [values_of(p).clone() for p in model.parameters()]
    scaler.scale(model(x).sum()).backward()
    model[0].weight.grad.fill_(torch.inf)
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(values_of(p), old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch.func.jvp's own
@pytest.mark.parametrize("recipe", RECIPES)
def test_torch_func(recipe: str) -> None:
    model, plain, x = pair(recipe)
    for transform in (
        lambda m: torch.func.grad(lambda x: m(x).square().sum())(x),
        lambda m: torch.func.vmap(m)(x),
        lambda m: torch.func.vmap(torch.func.grad(lambda x: m(x).square().sum()))(x),
        lambda m: torch.func.jacrev(m)(x[0]),
        lambda m: torch.func.jvp(m, (x,), (x,))[1],
    ):
        torch.testing.assert_close(transform(model), transform(plain), rtol=1e-4, atol=1e-5)

    def loss(parameters: dict[str, torch.Tensor], m: nn.Module) -> Any:
        return torch.func.functional_call(m, parameters, (x,)).square().sum()

    grads = [torch.func.grad(loss)({n: p.detach() for n, p in m.named_parameters()}, m) for m in (model, plain)]
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_of_gradients_and_saving_on_the_cpu(recipe: str) -> None:
    model, plain, x = pair(recipe)
    for m in (model, plain):
        inputs = x.clone().requires_grad_()
        with torch.autograd.graph.save_on_cpu():
            out = m(inputs).square().sum()
        (grad,) = torch.autograd.grad(out, inputs, create_graph=True)
        grad.square().sum().backward()
    assert_same_gradients(model, plain)


def test_hooks_see_plain_gradients() -> None:
    p, seen = nn.Parameter(quantized(torch.randn(4, 8), "group asymmetric")), []
    p.register_hook(lambda grad: seen.append(type(grad)))
    p.register_post_accumulate_grad_hook(lambda parameter: seen.append(type(parameter.grad)))
    F.linear(torch.ones(2, 8), p).sum().backward()
    assert seen == [torch.Tensor] * 2
