"""A model that others wrote: a small Llama of transformers, whose linear weights are int8."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import lamina
from lamina import ScaledInt8Tensor

TEXT = b"the quick brown fox jumps over the lazy dog. "


def make_llama(**options: Any) -> LlamaForCausalLM:
    """Two layers of width 64 with grouped queries, on bytes; the same random weights each time."""
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        **options,
    )
    torch.manual_seed(5)
    return LlamaForCausalLM(config)


def wrap(model: nn.Module, **recipe: Any) -> Any:
    """All weights of linear layers: seven a layer, and the head."""
    quantize = partial(ScaledInt8Tensor.quantize, **recipe)
    return lamina.wrap_parameters(model, quantize, where=lambda _, module, __: isinstance(module, nn.Linear))


def tokens() -> Tensor:
    return torch.tensor(list(TEXT * 2))[None]


def finetune(model: Any, steps: int = 12) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=tokens(), labels=tokens()).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def dequantized(model: Any) -> Any:
    """The same model with the plain values of its weights."""
    return lamina.unwrap_parameters(copy.deepcopy(model))


def generate(model: Any, **options: Any) -> Tensor:
    prompt = tokens()[:, :8]
    made: Tensor = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, **options)
    return made


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(input_ids=tokens()).logits
    return out


def true_bytes(model: nn.Module) -> int:
    """Of the memory that the parameters and buffers hold, leaf by leaf."""
    held = [*model.parameters(), *model.buffers()]
    return sum(leaf.nbytes for tensor in held for leaf in lamina.leaf_tensors(tensor))


@pytest.fixture(scope="module")
def trained() -> Any:
    """Fine-tuned until its choices are clear: the likeliest token is not a matter of rounding."""
    model = wrap(make_llama(), rounding="stochastic")
    model.losses = finetune(model, steps=60)
    return model.eval()


def wrapped_names(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if isinstance(p, ScaledInt8Tensor)]


def test_finetuning_lowers_the_loss_in_place(trained: Any) -> None:
    assert trained.losses[-1] < 0.2 * trained.losses[0], trained.losses
    assert len(wrapped_names(trained)) == 2 * 7 + 1
    assert {type(p.grad) for p in trained.parameters()} == {Tensor}
    lamina.assert_wrapped(trained)


def test_optimizer_writes_into_the_payloads() -> None:
    model = wrap(make_llama())
    leaves = [leaf for p in model.parameters() for leaf in lamina.leaf_tensors(p)]
    before = [(leaf.data_ptr(), leaf.clone()) for leaf in leaves]
    finetune(model, steps=1)
    after = [leaf for p in model.parameters() for leaf in lamina.leaf_tensors(p)]
    assert [leaf.data_ptr() for leaf in after] == [pointer for pointer, _ in before]
    assert not any(torch.equal(now, then) for now, (_, then) in zip(after, before, strict=True))


def test_logits_equal_those_of_the_dequantized_weights(trained: Any) -> None:
    plain = dequantized(trained)
    assert wrapped_names(plain) == []
    torch.testing.assert_close(logits(trained), logits(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"do_sample": False}, {"do_sample": False, "use_cache": False}, {"do_sample": False, "num_beams": 3}],
    ids=["greedy", "without cache", "beams"],
)
def test_generation_equals_that_of_the_dequantized_weights(trained: Any, options: dict[str, Any]) -> None:
    made = generate(trained, **options)
    assert torch.equal(made, generate(dequantized(trained), **options))


def test_it_generates_what_it_was_trained_on(trained: Any) -> None:
    assert bytes(generate(trained, do_sample=False)[0].tolist()) == (TEXT * 2)[: 8 + 24]


def test_greedy_generation_uses_the_payloads(trained: Any) -> None:
    """Under strict no product falls back to decoded weights."""
    with lamina.strict():
        assert torch.equal(generate(trained, do_sample=False), generate(dequantized(trained), do_sample=False))


def with_activation(trained: Any, activation: str) -> Any:
    other = make_llama().eval()
    other.load_state_dict(trained.state_dict())
    return wrap(other, activation=activation)


@pytest.mark.parametrize(("activation", "error"), [("int16", 1e-2), ("int8", 0.5), ("auto", 0.5)])
def test_integer_activations_generate_the_same(trained: Any, activation: str, error: float) -> None:
    other = with_activation(trained, activation)
    torch.testing.assert_close(logits(other), logits(trained), rtol=0, atol=error)
    assert torch.equal(generate(other, do_sample=False), generate(trained, do_sample=False))


def test_packed_weights_generate_the_same(trained: Any) -> None:
    other = with_activation(trained, "int16").requires_grad_(False)
    lamina.pack_(other)
    assert wrapped_names(other) == []
    assert torch.equal(generate(other, do_sample=False), generate(trained, do_sample=False))
    assert true_bytes(other) == true_bytes(trained)


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    model = wrap(make_llama(tie_word_embeddings=True), rounding="stochastic")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert type(model.lm_head.weight) is ScaledInt8Tensor
    losses = finetune(model)
    assert losses[-1] < 0.8 * losses[0], losses
    assert model.lm_head.weight is model.model.embed_tokens.weight
    torch.save(model.state_dict(), tmp_path / "tied.pt")
    other = wrap(make_llama(tie_word_embeddings=True))
    other.load_state_dict(torch.load(tmp_path / "tied.pt", weights_only=True))
    assert other.lm_head.weight is other.model.embed_tokens.weight
    assert torch.equal(logits(other.eval()), logits(model.eval()))
    assert torch.equal(generate(model, do_sample=False), generate(dequantized(model), do_sample=False))


# The new name came after the last release for Python 3.10.
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")
def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    gradients, calls = [], []
    for checkpointed in (False, True):
        model = wrap(make_llama()).train()
        if checkpointed:
            model.gradient_checkpointing_enable()
        seen: list[nn.Module] = []
        model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, *_, seen=seen: seen.append(module))
        model(input_ids=tokens(), labels=tokens(), use_cache=False).loss.backward()
        gradients.append([p.grad for p in model.parameters()])
        calls.append(len(seen))
    assert calls == [1, 2]  # the second is of the backward
    for kept, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(recomputed, kept)


def test_bfloat16_keeps_the_payloads() -> None:
    model = wrap(make_llama()).eval()
    before = {name: w.qdata.clone() for name, w in model.named_parameters() if isinstance(w, ScaledInt8Tensor)}
    model.to(torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    for name, payload in before.items():
        assert torch.equal(model.get_parameter(name).qdata, payload), name
    torch.testing.assert_close(logits(model), logits(dequantized(model)), rtol=0.1, atol=0.1)


@pytest.mark.slow
def test_compiled_forward_and_backward_equal_eager(trained: Any) -> None:
    eager, compiled = copy.deepcopy(trained), copy.deepcopy(trained)
    graph = torch.compile(compiled, fullgraph=True)
    losses = []
    for model in (eager, graph):
        loss = model(input_ids=tokens(), labels=tokens(), use_cache=False).loss
        loss.backward()
        losses.append(loss)
    torch.testing.assert_close(losses[1], losses[0])
    for (name, one), other in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_survives_torch_save(trained: Any, tmp_path: Path, assign: bool) -> None:
    torch.save(trained.state_dict(), tmp_path / "llama.pt")
    state = torch.load(tmp_path / "llama.pt", weights_only=True)
    other = make_llama() if assign else wrap(make_llama())
    other.load_state_dict(state, assign=assign)
    assert wrapped_names(other) == wrapped_names(trained)
    assert torch.equal(logits(other.eval()), logits(trained))


def test_state_dict_of_int8_loads_into_a_plain_model(trained: Any) -> None:
    plain = make_llama().eval()
    plain.load_state_dict(trained.state_dict())
    assert wrapped_names(plain) == []
    assert torch.equal(logits(plain), logits(dequantized(trained)))


def test_flattened_state_dict_survives_safetensors(trained: Any, tmp_path: Path) -> None:
    tensors, metadata = lamina.flatten_state_dict(trained.state_dict())
    save_file(tensors, tmp_path / "llama.safetensors", metadata)
    with safe_open(tmp_path / "llama.safetensors", "pt") as file:
        saved = file.metadata()
    state = lamina.unflatten_state_dict(load_file(tmp_path / "llama.safetensors"), saved)
    other = wrap(make_llama())
    other.load_state_dict(state)
    assert torch.equal(logits(other.eval()), logits(trained))
    assert (tmp_path / "llama.safetensors").stat().st_size < 1.2 * true_bytes(trained)


def test_save_pretrained_takes_the_plain_values(trained: Any, tmp_path: Path) -> None:
    """The file is an ordinary checkpoint. Wrapped again, each payload is what it was: its rows hold their maximum."""
    state = {name: lamina_plain(tensor) for name, tensor in trained.state_dict().items()}
    trained.save_pretrained(tmp_path, state_dict=state)
    loaded = wrap(LlamaForCausalLM.from_pretrained(tmp_path))
    for name, tensor in trained.state_dict().items():
        other = loaded.state_dict()[name]
        if isinstance(tensor, ScaledInt8Tensor):
            assert torch.equal(other.qdata, tensor.qdata), name
            torch.testing.assert_close(other.scale, tensor.scale, rtol=2**-23, atol=0)
        else:
            assert torch.equal(other, tensor), name
    torch.testing.assert_close(logits(loaded), logits(trained), rtol=1e-4, atol=1e-4)


def lamina_plain(tensor: Tensor) -> Tensor:
    return tensor.to_plain() if isinstance(tensor, lamina.WrapperTensor) else tensor


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")  # safetensors asks for it on its way out
def test_save_pretrained_refuses_wrappers_as_they_are(trained: Any, tmp_path: Path) -> None:
    """safetensors asks a wrapper for its memory. The error beats a file without the weights."""
    with pytest.raises(RuntimeError, match="data pointer"):
        trained.save_pretrained(tmp_path)
    assert list(tmp_path.glob("*.safetensors")) == []


def test_footprint_is_a_quarter_for_the_wrapped_weights() -> None:
    """transformers reports bytes of the logical dtype; ``leaf_tensors`` shows what is held: 1 a value, 4 a row."""
    model = make_llama()
    plain = model.get_memory_footprint()
    assert plain == true_bytes(model)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    values, rows = sum(each.weight.numel() for each in linears), sum(each.out_features for each in linears)
    wrap(model)
    assert model.get_memory_footprint() == plain
    assert true_bytes(model) == plain - 3 * values + 4 * rows
    assert sum(map(true_bytes, linears)) < 0.27 * 4 * values
