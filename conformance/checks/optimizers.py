"""Optimizers: a step changes the parameter as it changes a plain one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...subclasses.core.wrapper import WrapperTensor
from ...subclasses.parameters import wrap_parameters
from ..check import check
from ..outcome import MismatchError
from ..subject import VALUED, Subject, addresses

Options = dict[str, Any]

# Learning rates with which two steps move each weight by more than what a representation rounds to.
RATES = {"Adadelta": 50.0, "Muon": 0.3}
RATE = 0.1
# Options beside the defaults, all together: what else the step does with the weight.
FURTHER: dict[str, Options] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "RMSprop": {"momentum": 0.5, "weight_decay": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"amsgrad": True, "weight_decay": 0.1},
    "NAdam": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "Rprop": {"etas": (0.4, 1.3)},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
# Takes sparse gradients; takes a closure, and is checked on its own.
_APART = ("Optimizer", "SparseAdam", "LBFGS")


def optimizers() -> Iterator[str]:
    """The names of those that torch has."""
    for name, value in vars(torch.optim).items():
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name not in _APART:
            yield name


class Pair:
    """A layer whose weight is an instance, and a plain one of the same values, which learn the same."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.wrapped, self.plain = subject.layer(), nn.Linear(8, 4, device=subject.device)
        with torch.no_grad():
            self.plain.weight.copy_(subject.values(self.wrapped.weight))
            self.plain.bias.copy_(self.wrapped.bias)
        self.input = subject.plain(3, 8, seed=4)

    @property
    def layers(self) -> tuple[Any, Any]:
        return self.plain, self.wrapped

    def backward(self, layer: Any) -> torch.Tensor:
        """Gradients that do not depend on the weight: the two layers get the same, whatever was rounded."""
        loss = F.linear(self.input, layer.weight, layer.bias).sum()
        loss.backward()
        if layer.weight.grad is None:
            raise MismatchError("F.linear(input, w).sum().backward(); w.grad", "a gradient", None)
        return loss

    def train(self, name: str, options: Options, steps: int = 2) -> None:
        """Some steps of each layer, and a comparison of what became of weights and biases."""
        text = f"torch.optim.{name}([w, bias], {', '.join(f'{k}={v}' for k, v in options.items())}).step()"
        where = f"{text}, {steps} times; w"
        for layer in self.layers:
            # Muon takes matrices only.
            given = [layer.weight] if name == "Muon" else [layer.weight, layer.bias]
            optimizer = getattr(torch.optim, name)(given, **options)
            for _ in range(steps):
                self._step(optimizer, layer, where)
        self.same(where, steps)

    def _step(self, optimizer: Any, layer: Any, where: str) -> None:
        optimizer.zero_grad()
        self.backward(layer)
        try:
            optimizer.step()
        except Exception as error:
            raise MismatchError(where, "a step", error) from error

    def same(self, text: str, writes: int = 2) -> None:
        """Weights and biases agree after so many ``writes``: the values, and of the wrapped weight the class."""
        if not self.subject.is_instance(self.wrapped.weight):
            raise MismatchError(text, self.subject.cls, type(self.wrapped.weight))
        self.subject.stored(text, self.wrapped.weight, self.plain.weight, loosely=True, writes=writes)
        self.subject.stored(f"{text}: the bias", self.wrapped.bias, self.plain.bias, loosely=True)


def _options(name: str, **options: Any) -> Iterator[Options]:
    """Defaults but for the rate; and more options, if there are some."""
    yield {"lr": RATES.get(name, RATE), **options}
    yield {"lr": RATES.get(name, RATE), **FURTHER.get(name, {"weight_decay": 0.1}), **options}


@check("writes", "an optimizer step is computed into a copy: the loss barely moves", kinds=VALUED)
def optimizers_step_one_by_one(subject: Subject) -> None:
    """Every optimizer of torch, one tensor at a time: two steps change the weight as they change a plain one, with
    defaults, and with momentum and weight decay."""
    for name in optimizers():
        takes_lists = "foreach" in getattr(torch.optim, name).__init__.__code__.co_varnames
        for options in _options(name, **({"foreach": False} if takes_lists else {})):
            Pair(subject).train(name, options)


@check("writes", "foreach optimizers update copies, or fail on a list of mixed types", kinds=VALUED)
def optimizers_step_over_lists(subject: Subject) -> None:
    """Every optimizer with ``foreach=True``, over an instance and a plain tensor: equal to one at a time."""
    for name in optimizers():
        if "foreach" in getattr(torch.optim, name).__init__.__code__.co_varnames:
            for options in _options(name, foreach=True):
                Pair(subject).train(name, options)


@check("writes", "fused optimizers update copies, or fail", kinds=VALUED)
def optimizers_step_fused(subject: Subject) -> None:
    """The optimizers that have a fused step: equal to one at a time."""
    for name in FUSED:
        for options in _options(name, fused=True):
            Pair(subject).train(name, options)


@check("writes", "a tensor as the learning rate fails", kinds=VALUED)
def the_learning_rate_may_be_a_tensor(subject: Subject) -> None:
    """The rate of Adam, AdamW and SGD as a tensor, fused and not."""
    for name in ("SGD", "Adam", "AdamW"):
        for fused in (False, True):
            options = {"lr": torch.tensor(RATE, device=subject.device), "fused": fused}
            Pair(subject).train(name, options if fused else options | {"foreach": False})


@check("writes", "LBFGS fails on a wrapped parameter", kinds=VALUED)
def optimizers_with_a_closure_step(subject: Subject) -> None:
    """LBFGS flattens gradients and adds pieces of a vector to the parameters."""
    pair = Pair(subject)
    for layer in pair.layers:
        optimizer = torch.optim.LBFGS(layer.parameters(), lr=20.0, max_iter=1)

        def closure(layer: Any = layer, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            return pair.backward(layer)

        optimizer.step(closure)
    pair.same("torch.optim.LBFGS([w, bias], lr=20.0, max_iter=1).step(closure); w")


@check("writes", "after 50 steps the loss is where it was", kinds=VALUED)
def training_lowers_the_loss(subject: Subject) -> None:
    """Thirty steps of SGD on a linear target lower the loss to a tenth."""
    layer, rows = subject.layer(), subject.plain(64, 8, seed=1)
    target = rows @ subject.plain(8, 4, seed=2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.3)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(rows, layer.weight, layer.bias), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    if not losses[-1] < losses[0] / 10:
        raise MismatchError("30 steps of SGD(lr=0.3)", f"a loss below {losses[0] / 10:.3g}", f"{losses[-1]:.3g}")


@check("writes", "an optimizer that was built before the parameters were wrapped trains the old ones", kinds=VALUED)
def an_optimizer_follows_the_wrap(subject: Subject) -> None:
    """Parameters that are wrapped after the optimizer was built are those that it trains."""
    pair = Pair(subject)
    late = nn.Linear(8, 4, device=subject.device)
    late.load_state_dict(pair.plain.state_dict())
    optimizers = [torch.optim.SGD(layer.parameters(), lr=RATE, momentum=0.9) for layer in (pair.plain, late)]
    if issubclass(subject.cls, WrapperTensor):
        wrap_parameters(late, subject.make, where=lambda name, *_: name == "weight")
    else:
        torch.utils.swap_tensors(late.weight, nn.Parameter(subject.wrap(late.weight)))
    pair.wrapped = late
    for layer, optimizer in zip((pair.plain, late), optimizers, strict=True):
        for _ in range(2):
            optimizer.zero_grad()
            pair.backward(layer)
            optimizer.step()
    pair.same(
        "optimizer = SGD(layer.parameters()); wrap_parameters(layer, make); optimizer.step(), twice; layer.weight"
    )


@check("writes", "an optimizer step moves the memory that a captured CUDA graph reads", kinds=VALUED)
def a_step_keeps_the_addresses(subject: Subject) -> None:
    """The memory of the inner tensors is the same after steps of SGD and Adam, as lists and fused."""
    for name in ("SGD", "Adam"):
        for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
            pair = Pair(subject)
            before = addresses(pair.wrapped.weight)
            pair.train(name, {"lr": RATE, **options})
            if addresses(pair.wrapped.weight) != before:
                raise MismatchError(f"{name}({options}).step(): addresses in w", "those from before", "new memory")
