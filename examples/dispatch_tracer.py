"""One training step in three ways: plain, under a mode that counts operators, with parameters that record them.

Run it with `python examples/dispatch_tracer.py`.

Losses, gradients and updated parameters of the three are equal bit for bit, or the script raises. Prints the operators
of each phase (forward, backward, optimizer) and, from a fourth step, the functions that the program called; then all
counts as one line of JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lamina
from lamina.modes import FunctionLog, OpCounter


def make_model() -> nn.Sequential:
    """The same weights at each call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def make_batch() -> tuple[Tensor, Tensor]:
    """Eight random rows, and a class for each."""
    torch.manual_seed(1)
    return torch.randn(8, 16), torch.randint(4, (8,))


def bits(tensor: Tensor) -> Tensor:
    """The bits of a float32 tensor, whatever it is wrapped in."""
    plain = tensor.to_plain() if isinstance(tensor, lamina.WrapperTensor) else tensor.clone()
    return plain.detach().view(torch.int32)


def train_one_step(model: nn.Module, scope: AbstractContextManager[Any]) -> list[Tensor]:
    """The bits of loss, gradients and updated parameters after one SGD step that runs inside of `scope`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows, classes = make_batch()
    with scope:
        loss = F.cross_entropy(model(rows), classes)
        loss.backward()
        optimizer.step()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [bits(tensor) for tensor in (loss, *gradients, *model.parameters())]


def check_equal(way: str, mine: list[Tensor], plain: list[Tensor]) -> None:
    """Raise unless loss, gradients and parameters agree in every bit."""
    if len(mine) != len(plain) or not all(map(torch.equal, mine, plain)):
        raise RuntimeError(f"the step {way} gave other numbers than the plain step")


def show(way: str, by_phase: Mapping[Any, Counter[str]]) -> None:
    """Print the operators of each phase."""
    print(f"{way}:")
    for phase, counts in by_phase.items():
        print(f"  {phase:9} {counts.total():3}: " + ", ".join(f"{op} x{calls}" for op, calls in counts.most_common()))


def trace() -> dict[str, Any]:
    """Run the step in each way, compare, and return the counts of operators."""
    plain = train_one_step(make_model(), nullcontext())
    counter, log, functions = OpCounter(), lamina.Log(), FunctionLog()
    check_equal("under OpCounter", train_one_step(make_model(), counter), plain)
    logged = lamina.wrap_parameters(make_model(), lamina.LoggingTensor)
    check_equal("with logged parameters", train_one_step(logged, log), plain)
    check_equal("under FunctionLog", train_one_step(make_model(), functions), plain)
    show("Counted below autograd", counter.by_phase)
    show("Recorded by the parameters and what came of them", log.by_phase)
    show("Called by the program, before autograd", functions.by_phase)
    return {"counter": counter.by_phase, "log": log.by_phase, "functions": functions.by_phase}


if __name__ == "__main__":
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread, one order of every sum
    try:
        print(json.dumps(trace()))
    finally:
        torch.set_num_threads(threads)
