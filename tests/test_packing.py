"""``pack_`` and ``unpack_``: the weights of linear layers in the kernels' layout and back; all of them, or none."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

import lamina
from lamina import PackedInt8Tensor, PerGroup, ScaledInt8Tensor, pack_, unpack_
from lamina.subclasses.scaled_int8 import PackedError

aten = torch.ops.aten


def linear(rows: int = 5, columns: int = 7, activation: str = "int16", **recipe: Any) -> nn.Linear:
    layer = nn.Linear(columns, rows)
    weight = ScaledInt8Tensor.quantize(layer.weight.detach(), activation=activation, **recipe)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def net() -> nn.Sequential:
    return nn.Sequential(linear(9, 7, symmetric=False), nn.GELU(), nn.LayerNorm(9), linear(5, 9))


def kinds(module: nn.Module) -> dict[str, type]:
    return {name: type(p) for name, p in module.named_parameters(remove_duplicate=False)}


def leaves(module: nn.Module) -> list[torch.Tensor]:
    return [leaf.clone() for p in module.parameters() for leaf in lamina.leaf_tensors(p)]


def assert_as_it_was(module: nn.Module, before: list[torch.Tensor]) -> None:
    assert not any(kind is PackedInt8Tensor for kind in kinds(module).values())
    assert all(torch.equal(a, b) for a, b in zip(leaves(module), before, strict=True))


def test_there_and_back() -> None:
    module, x = net(), torch.randn(3, 7)
    parameters, before, out = list(module.parameters()), leaves(module), module(x).detach()
    optimizer = torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1)
    assert pack_(module) is module
    packed = {"0.weight", "3.weight"}
    assert {name for name, kind in kinds(module).items() if kind is PackedInt8Tensor} == packed
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
    assert all(isinstance(p, nn.Parameter) for p in module.parameters())
    table = lamina.op_table(PackedInt8Tensor)
    hits = table[aten.addmm.default].hits
    torch.testing.assert_close(module(x), out, rtol=1e-4, atol=1e-4)  # of the sums, that are added in another order
    assert table[aten.addmm.default].hits == hits + 2
    module(x).sum().backward()
    optimizer.step()
    assert unpack_(module) is module
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
    assert {name for name, kind in kinds(module).items() if kind is ScaledInt8Tensor} == packed
    kept = [leaf for name in packed for leaf in lamina.leaf_tensors(module.get_parameter(name))]
    assert all(any(torch.equal(leaf, old) for old in before) for leaf in kept)


@pytest.mark.parametrize("rounds", [1, 2])
def test_unpacked_is_bit_for_bit_what_was_packed(rounds: int) -> None:
    layer = linear(33, 17, symmetric=False, rounding="stochastic", logical_dtype=torch.float32)
    before, context = leaves(layer), layer.weight.__tensor_flatten__()
    for _ in range(rounds):
        unpack_(pack_(layer))
    assert_as_it_was(layer, before)
    assert layer.weight.__tensor_flatten__() == context


def test_what_hangs_on_a_parameter_stays() -> None:
    layer = linear()
    layer.weight.note, layer.weight.grad = "kept", torch.ones(5, 7)
    for convert in (pack_, unpack_):
        convert(layer)
        assert layer.weight.note == "kept"
        assert torch.equal(layer.weight.grad, torch.ones(5, 7))
        assert not layer.weight.requires_grad


def test_layers_that_share_a_weight_share_it_still() -> None:
    module = nn.Sequential(linear(7, 7), linear(7, 7), linear(7, 7))
    module[2].weight = module[0].weight
    pack_(module)
    assert module[0].weight is module[2].weight
    assert set(map(type, (module[0].weight, module[1].weight))) == {PackedInt8Tensor}
    unpack_(module)
    assert module[0].weight is module[2].weight


def test_a_module_that_stands_in_two_places() -> None:
    layer = linear(7, 7)
    module = nn.ModuleDict({"a": layer, "b": layer})
    asked: list[str] = []
    pack_(module, where=lambda name, *_: asked.append(name) or name == "b.weight")
    assert asked == ["a.weight", "b.weight"]
    assert type(layer.weight) is PackedInt8Tensor


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle, self.head = nn.Embedding(9, 7), linear(7, 7), linear(9, 7)
        self.table.weight = self.head.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.table(tokens)))


def test_a_weight_that_an_embedding_shares_is_left_alone() -> None:
    module = Tied()
    weight, tokens = module.head.weight, torch.tensor([[1, 8]])
    wanted = module(tokens).detach()
    pack_(module)
    assert type(module.middle.weight) is PackedInt8Tensor
    assert type(module.head.weight) is ScaledInt8Tensor
    assert module.table.weight is module.head.weight is weight
    torch.testing.assert_close(module(tokens), wanted, rtol=1e-3, atol=1e-3)
    unpack_(module)
    assert torch.equal(module(tokens), wanted)


@pytest.mark.parametrize("chosen", ["head.weight", "table.weight"])
def test_unless_it_is_asked_for(chosen: str) -> None:
    module, tokens = Tied(), torch.tensor([[1, 8]])
    wanted = module(tokens).detach()
    pack_(module, where=lambda name, *_: name == chosen)
    assert type(module.middle.weight) is ScaledInt8Tensor
    assert type(module.head.weight) is PackedInt8Tensor
    assert module.table.weight is module.head.weight
    torch.testing.assert_close(module(tokens), wanted, rtol=1e-3, atol=1e-3)
    unpack_(module)
    assert type(module.table.weight) is ScaledInt8Tensor
    assert module.table.weight is module.head.weight


def test_where_gets_name_owner_and_parameter() -> None:
    module, asked = net(), []
    pack_(module, where=lambda *arguments: asked.append(arguments) or arguments[1] is module[3])
    assert [(name, owner, parameter) for name, owner, parameter in asked] == [
        ("0.weight", module[0], module[0].weight),
        ("3.weight", module[3], module[3].weight),
    ]
    assert [type(module[i].weight) for i in (0, 3)] == [ScaledInt8Tensor, PackedInt8Tensor]


def test_what_is_no_linear_weight_is_left_alone() -> None:
    conv = nn.Conv1d(4, 4, 1)
    conv.weight = nn.Parameter(ScaledInt8Tensor.quantize(conv.weight.detach(), activation="int8"), requires_grad=False)
    with_bias = linear()
    with_bias.bias = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(5), activation="int8"), requires_grad=False)
    module = nn.ModuleList([conv, with_bias, nn.Linear(3, 3), nn.Bilinear(2, 2, 2)])
    pack_(module)
    assert [name for name, kind in kinds(module).items() if kind is PackedInt8Tensor] == ["1.weight"]


def test_the_original_of_a_parametrization_is_left_alone() -> None:
    class Double(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    module = nn.Sequential(linear(), linear(7, 5))
    parametrize.register_parametrization(module[0], "weight", Double(), unsafe=True)
    pack_(module)
    assert type(module[0].parametrizations.weight.original) is ScaledInt8Tensor
    assert type(module[1].weight) is PackedInt8Tensor


def test_attention_and_encoder_in_eval() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().requires_grad_(False)
    lamina.wrap_parameters(
        encoder,
        lambda t: ScaledInt8Tensor.quantize(t, activation="int16"),
        where=lambda *site: site[2].dim() == 2,
    )
    x = torch.randn(2, 3, 8)
    wanted = encoder(x)
    pack_(encoder)
    packed = {name for name, kind in kinds(encoder).items() if kind is PackedInt8Tensor}
    assert packed == {"self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}
    torch.testing.assert_close(encoder(x), wanted, rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        torch.testing.assert_close(encoder(x), wanted, rtol=1e-3, atol=1e-3)


def test_a_compiled_module_compiles_again() -> None:
    module, x = net(), torch.randn(3, 7)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), module(x))
    assert pack_(compiled) is compiled
    assert type(module[0].weight) is PackedInt8Tensor
    assert torch.equal(compiled(x), module(x))
    assert unpack_(compiled) is compiled
    assert type(module[0].weight) is ScaledInt8Tensor
    assert torch.equal(compiled(x), module(x))


def test_names_are_those_before_compiling() -> None:
    module, asked = nn.Sequential(linear()), []
    module[0] = torch.compile(module[0], backend="eager")
    pack_(module, where=lambda name, *_: asked.append(name) or True)
    assert asked == ["0.weight"]


def test_a_packed_module_is_copied() -> None:
    module, x = pack_(net()), torch.randn(3, 7)
    twin = copy.deepcopy(module)
    assert type(twin[0].weight) is PackedInt8Tensor
    assert torch.equal(twin(x), module(x))


def test_a_packed_module_is_saved_and_loaded_elsewhere() -> None:
    module, target, x = pack_(net()), net(), torch.randn(3, 7)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert type(state["0.weight"]) is ScaledInt8Tensor
    target.load_state_dict(state)
    torch.testing.assert_close(target(x), module(x), rtol=1e-4, atol=1e-4)
    assert torch.equal(pack_(target)(x), module(x))


def test_memory_to_fill_is_portable() -> None:
    layer = pack_(linear())
    layer.to_empty(device="cpu")
    assert type(layer.weight) is ScaledInt8Tensor
    with pytest.warns(match="was wrapped as PackedInt8Tensor, and is a ScaledInt8Tensor now"):
        layer.load_state_dict(linear().state_dict())
    assert type(pack_(layer).weight) is PackedInt8Tensor


def test_casts_keep_the_layout() -> None:
    layer, x = pack_(linear()), torch.randn(2, 7)
    out = layer(x)
    assert type(layer.half().weight) is PackedInt8Tensor
    assert layer(x.half()).dtype is torch.float16
    layer.to("cpu", torch.float32)
    assert type(layer.weight) is PackedInt8Tensor
    torch.testing.assert_close(layer(x), out, rtol=1e-2, atol=1e-2)  # the bias went through float16


# errors: nothing is half done


def test_trainable_weights_are_named() -> None:
    module = nn.Sequential(*(linear() for _ in range(12)))
    for layer in module[2:]:
        layer.weight.requires_grad_(True)
    before = leaves(module)
    with pytest.raises(PackedError, match=r"nothing was changed") as caught:
        pack_(module)
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(":")[0] for line in lines] == [f"{i}.weight" for i in range(2, 10)]
    assert all("requires_grad_(False)" in line for line in lines)
    assert lines[-1].endswith("(and 2 more)")
    assert_as_it_was(module, before)


def failing(name: str, owner: nn.Module, parameter: nn.Parameter) -> bool:
    if name == "3.weight":
        raise KeyError("mine")
    return True


CANNOT: dict[str, tuple[Callable[[nn.Sequential], Any], type[Exception], str]] = {
    "groups": (lambda m: m.append(linear(4, 6, granularity=PerGroup(3))), PackedError, r"4\.weight: .* PerRow\(\)"),
    "activation": (lambda m: m.append(linear(4, 6, "float")), PackedError, "with_activation"),
    "a view": (lambda m: m[3].weight.t(), lamina.ParameterInUseError, "3.weight"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_one_weight_that_cannot_be_packed_leaves_all(name: str) -> None:
    module = net()
    spoil, error, said = CANNOT[name]
    held = spoil(module)
    before = leaves(module)
    with pytest.raises(error, match=said):
        pack_(module)
    assert_as_it_was(module, before)
    assert held is not None


def test_a_where_that_raises_leaves_all() -> None:
    module = net()
    before = leaves(module)
    with pytest.raises(KeyError, match="mine"):
        pack_(module, where=failing)
    assert_as_it_was(module, before)


def test_one_that_cannot_be_unpacked_leaves_all() -> None:
    module = pack_(net())
    held = module[3].weight.t()
    with pytest.raises(lamina.ParameterInUseError, match=r"3\.weight"):
        unpack_(module)
    assert [type(module[i].weight) for i in (0, 3)] == [PackedInt8Tensor] * 2
    del held
    unpack_(module)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pack_(nn.Linear(3, 3)), "this Linear has no parameter that is a ScaledInt8Tensor that only linear"),
        (lambda: pack_(nn.ReLU()), "this ReLU has no parameter"),
        (lambda: pack_(pack_(linear())), "no parameter that is a ScaledInt8Tensor"),
        (lambda: pack_(linear(), where=lambda *_: False), "ScaledInt8Tensor that was chosen"),
        (lambda: unpack_(linear()), "no parameter that is a PackedInt8Tensor"),
    ],
)
def test_nothing_to_do_is_an_error(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(PackedError, match=said):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pack_(linear().weight), "torch.nn.Module, got a ScaledInt8Tensor"),
        (lambda: unpack_("model"), "torch.nn.Module, got a str"),
        (lambda: pack_(linear(), where="0.weight"), "where is a predicate"),
    ],
)
def test_arguments_of_other_types(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


def test_packed_weights_are_frozen() -> None:
    layer = pack_(linear(5, 7)).requires_grad_(True)
    F.mse_loss(layer(torch.randn(2, 7)), torch.randn(2, 5)).backward()
    with pytest.raises(PackedError, match=r"unpack_\(module\)"):
        torch.optim.AdamW([layer.weight]).step()
