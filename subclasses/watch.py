"""Watches whether wrapped parameters stay wrapped: what was done to each, noted where loading a state dict looks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from .core.gradients import layers_of
from .core.private import load_hooks, own_parameters


class ReplacedWarning(UserWarning):
    """``load_state_dict`` put another tensor in the place of a wrapped parameter."""


class Record(NamedTuple):
    """What was done to one parameter."""

    name: str
    layers: tuple[type, ...]
    plain: type  # the class of the Parameter before

    def holds(self, parameter: object) -> bool:
        return isinstance(parameter, torch.Tensor) and classes_of(parameter) == self.layers


class Watch:
    """A load hook of a submodule that warns when a wrapped parameter of its own was replaced. Being registered with the
    module it is copied, pickled and moved with it, and so are the records."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def __call__(self, module: nn.Module, _: object) -> None:
        for text in self.replaced(module):
            warnings.warn(
                f"load_state_dict: {text}. Load without assign=True, which copies into the wrapper and keeps it, or "
                "call lamina.wrap_parameters again.",
                ReplacedWarning,
                stacklevel=2,
            )

    def replaced(self, module: nn.Module) -> Iterator[str]:
        for local, record in self.records.items():
            now = own_parameters(module).get(local)
            if not record.holds(now):
                was = " around ".join(cls.__name__ for cls in record.layers)
                yield f"parameter {record.name!r} was wrapped as {was}, and is a {type(now).__name__} now"


def watches(module: nn.Module) -> list[Watch]:
    """The watches of the parameters that ``module`` owns itself: one, or none."""
    return [hook for hook in load_hooks(module).values() if isinstance(hook, Watch)]


def note(module: nn.Module, local: str, record: Record) -> None:
    """Records what was done to the parameter ``local`` of ``module``, and watches it from now on."""
    if not watches(module):
        module.register_load_state_dict_post_hook(Watch())
    watches(module)[0].records[local] = record


def classes_of(parameter: torch.Tensor) -> tuple[type, ...]:
    """The classes of its layers, the outermost first."""
    return tuple(layer.cls for layer in layers_of(parameter))
