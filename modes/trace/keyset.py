"""Key sets, as data: what the arguments carry, what the thread adds and takes away, and what the operator passes over.

A call takes ``((arguments | included) - excluded) & mask``, and the highest key left picks the slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import (
    OpOverload,
    has_key,
    highest_key,
    keys_of,
    names_of_keys,
    schema_of,
    thread_keys,
    without_key,
)
from .slots import Kernel, Slot

_NUMBER = torch.tensor(0.0, device="cpu")
with torch.inference_mode():
    _NUMBER_IN_INFERENCE = torch.tensor(0.0, device="cpu")
# The trace itself is a key: it stands above all others, and is not shown.
_OWN = "PythonDispatcher"


@dataclass(frozen=True, slots=True)
class KeySets:
    """The keys of one decision, the lowest priority first. ``masked``: those that the operator's table passes over.
    ``below``: the key of the kernel that redispatched: it took itself, and the keys above, out of the set.
    """

    arguments: tuple[str, ...]
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    masked: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    below: str | None = None

    @property
    def highest(self) -> str | None:
        """The key that picks the slot; None where nothing is left."""
        return self.left[-1] if self.left else None

    def under(self, key: str) -> KeySets:
        """What is left when the kernel of ``key`` calls the operator again, below itself."""
        return replace(self, left=self.left[: self.left.index(key)], below=key) if key in self.left else self

    def to_json(self) -> dict[str, Any]:
        """As plain types."""
        names = ("arguments", "included", "excluded", "masked", "left")
        return {**{name: list(getattr(self, name)) for name in names}, "below": self.below}

    def __str__(self) -> str:
        """The equation. Of the excluded keys, those that would have been there."""
        there = {*self.arguments, *self.included}
        out = [key for key in self.excluded if key in there]
        text = f"{{{' '.join(self.arguments)}}}"
        for sign, keys in ((" | ", self.included), (" - ", out), (" & ~", self.masked)):
            text += f"{sign}{{{' '.join(keys)}}}" if keys else ""
        return text + (f" below {self.below}" if self.below else "")


def operands(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors of a call, which the dispatcher asks for their keys. A number in the place of a tensor is one: C++
    has made a tensor of it, on the CPU, and shows it to Python as a number again."""
    found = [each for value in (*args, *kwargs.values()) for each in tensors_in(value)]
    arguments = schema_of(op).arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | dict(kwargs)
    places = [given.get(argument.name) for argument in arguments if isinstance(argument.type, torch.TensorType)]
    number = _NUMBER_IN_INFERENCE if torch.is_inference_mode_enabled() else _NUMBER
    return found + [number] * any(isinstance(value, (int, float, complex)) for value in places)


def key_sets(tensors: Iterable[torch.Tensor], slots: Mapping[str, Slot]) -> KeySets:
    """What the dispatcher computes for a call with these tensors, here and now, of an operator with these slots."""
    arguments: Any = None
    for tensor in tensors:
        keys = keys_of(tensor)
        arguments = keys if arguments is None else arguments | keys
    included, excluded = (without_key(keys, _OWN) for keys in thread_keys())
    both = included if arguments is None else arguments | included
    left, masked = _left(both - excluded, slots)
    names = () if arguments is None else names_of_keys(arguments)
    return KeySets(names, names_of_keys(included), names_of_keys(excluded), masked, left)


def _left(keys: Any, slots: Mapping[str, Slot]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The runtime keys of a set, by the order in which the dispatcher asks for them: those that it takes, and those
    that the operator passes over."""
    taken: list[str] = []
    over: list[str] = []
    while names_of_keys(keys):
        key = highest_key(keys)
        slot = slots.get(key)
        (over if slot is not None and slot.kernel is Kernel.FALLTHROUGH else taken).append(key)
        if not has_key(keys, key):  # a backend bit that no functionality of the set goes with
            break
        keys = without_key(keys, key)
    return tuple(reversed(taken)), tuple(reversed(over))
