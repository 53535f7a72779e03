"""Trains the GPT of `gpt_model.py`, and lets it write. With int8 weights that takes one more line: a call of `wrap`.

Run it with `python examples/gpt_training.py`: a few steps, in float32 and in int8. `char_gpt.py` does it in earnest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpt_model import CONTEXT, CharGPT, Text, generate, loss_of
from torch import nn

import lamina

RATE, WARM_UP = 0.5, 20  # AdamW's rate: this / width after so many steps, then it falls to 0
FP32, INT8, EAGER, COMPILED = "fp32", "int8", "eager", "compiled"


def wrap(model: nn.Module, **recipe: Any) -> nn.Module:
    """Weights of linear layers become int8, with a scale for each row. Biases, norms and embeddings stay plain."""
    return lamina.wrap_parameters(
        model,
        partial(lamina.ScaledInt8Tensor.quantize, **recipe),
        where=lambda _, module, parameter: isinstance(module, nn.Linear) and parameter.dim() == 2,
    )


def weight_bytes(model: nn.Module) -> int:
    """Of all parameters, as they are in memory."""
    return sum(leaf.nbytes for parameter in model.parameters() for leaf in lamina.leaf_tensors(parameter))


def held_out_loss(model: nn.Module, text: Text) -> float:
    """Over 32 batches of text that no training saw; the same for each model."""
    with torch.no_grad():
        return statistics.mean(loss_of(model, *batch).item() for batch in text.batches(text.held_out, 32, seed=0))


def train(
    text: Text, mode: str, seed: int, weights: str, *, steps: int, rounding: str, width: int, advance: Any = int
) -> tuple[CharGPT, dict[str, Any]]:
    """A new model, trained, and what it took. `held_out` is its loss on other text; `step_ms` the median."""
    torch.manual_seed(seed)
    model = CharGPT(len(text.characters), width)
    if weights == INT8:
        wrap(model, rounding=rounding)
    rate = torch.tensor(0.0)  # a tensor: compiled code reads it, and is not compiled anew for each value
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.99))
    loss_fn: Callable[..., torch.Tensor] = partial(loss_of, model)
    update: Callable[[], Any] = optimizer.step
    if mode == COMPILED:
        torch.compiler.reset()  # torch compiles a function for eight models at most, then runs it eagerly
        loss_fn, update = torch.compile(loss_fn), torch.compile(update)
    losses, step_ms, started = [], [], time.perf_counter()
    for number, batch in enumerate(text.batches(text.train, steps, seed)):
        rate.fill_(RATE / width * min(1, (number + 1) / WARM_UP) * (1 - number / steps))
        start = time.thread_time()  # of one thread: what else the machine runs does not count
        loss = loss_fn(*batch)
        loss.backward()
        update()
        optimizer.zero_grad()
        step_ms.append((time.thread_time() - start) * 1e3)
        losses.append(loss.item())
        advance()
    row = {"weights": weights, "mode": mode, "seed": seed, "bytes": weight_bytes(model)}
    times = {"step_ms": statistics.median(step_ms), "seconds": time.perf_counter() - started}
    return model, {**row, "held_out": held_out_loss(model, text), **times, "losses": losses}


def write(trained: CharGPT, text: Text, activation: str, count: int) -> dict[str, Any]:
    """Continues held-out text with the values of a trained model: in fp32, or in int8 with that kind of activation."""
    model = CharGPT(len(text.characters), trained.width)
    model.load_state_dict(trained.state_dict())
    if activation != FP32:
        wrap(model, activation=activation)
    start = time.thread_time()
    written = text.decode(generate(model, text.held_out[:CONTEXT], count))
    rate = count / (time.thread_time() - start)
    return {"activation": activation, "bytes": weight_bytes(model), "characters_per_s": rate, "text": written}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in (FP32, INT8):
        figures = train(Text(), EAGER, 0, name, steps=3, rounding="stochastic", width=64)[1]
        print(f"{name}: {figures['bytes']:,} bytes, loss {figures['losses'][0]:.3f} to {figures['losses'][-1]:.3f}")
