"""What a step refers to: objects that are there before it runs, whether or not it uses them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


def referred(step: Callable[[], object]) -> Iterator[Any]:
    """The modules, optimizers and tensors that a function closes over or names, that a method's object has, or that a
    partial call is given."""
    if isinstance(step, functools.partial):
        yield from _found([*step.args, *step.keywords.values()])
        yield from referred(step.func)
    elif isinstance(step, nn.Module):
        yield step
    elif inspect.ismethod(step):
        yield from _found([step.__self__, *getattr(step.__self__, "__dict__", {}).values()])
    elif inspect.isfunction(step):
        variables = inspect.getclosurevars(step)
        yield from _found([*variables.nonlocals.values(), *variables.globals.values()])
    else:
        yield from _found(list(getattr(step, "__dict__", {}).values()))


def _found(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (nn.Module, torch.optim.Optimizer, torch.Tensor)):
            yield value
