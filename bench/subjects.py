"""What can be put on the bench: a subject wraps a tensor once per layer, or enters a scope once per layer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

MAX_LAYERS = 4


def _same(tensor: Tensor) -> Tensor:
    return tensor


def attribute(name: str) -> Callable[[Tensor], Tensor]:
    """The `unwrap` of a subject that keeps its inner tensor under `name`."""

    def read(outer: Tensor) -> Tensor:
        inner: Tensor = getattr(outer, name)
        return inner

    return read


@dataclass(frozen=True)
class Subject:
    """One way to put layers around tensors. `wrap` and `unwrap` add and remove one layer.

    A subject that only suits a weight (`weight_only`) wraps just that operand and may be inexact by `tolerance`,
    relative to the plain result on its own unwrapped values. `computes=False` marks a handler that returns a prepared
    answer; `has_values=False` a type of which only shape and dtype can be checked. `asked_for`: the user named it.
    """

    name: str
    origin: str
    wrap: Callable[[Tensor], Tensor] = _same
    unwrap: Callable[[Tensor], Tensor] = _same
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    max_layers: int = MAX_LAYERS
    weight_only: bool = False
    tolerance: float = 0.0
    computes: bool = True
    has_values: bool = True
    asked_for: bool = False

    def wrap_layers(self, tensor: Tensor, layers: int) -> Tensor:
        """`tensor` inside so many layers."""
        for _ in range(layers):
            tensor = self.wrap(tensor)
        return tensor

    def unwrap_layers(self, tensor: Tensor, layers: int) -> Tensor:
        """What is inside so many layers."""
        for _ in range(layers):
            tensor = self.unwrap(tensor)
        return tensor

    def scope_layers(self, layers: int) -> AbstractContextManager[Any]:
        """The scope, entered so many times already: leaving it leaves all."""
        stack = ExitStack()
        for _ in range(layers):
            stack.enter_context(self.scope())
        return stack


@dataclass(frozen=True)
class Absence:
    """A subject that this installation does not have, and why."""

    subject: str
    reason: str


PLAIN = Subject("plain", "torch", max_layers=0)


Made = TypeVar("Made")


def load_subjects(makers: dict[str, Callable[[], Made]]) -> tuple[list[Made], list[Absence]]:
    """What the makers give, and the reason for each that fails because something is not installed."""
    subjects, absences = [], []
    for name, make in makers.items():
        try:
            subjects.append(make())
        except (ImportError, AttributeError) as error:
            absences.append(Absence(name, f"not available here: {error}"))
    return subjects, absences
