"""The dispatcher's tables without a call: a tensor's keys, an operator's slots, why a call takes one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from ...subclasses.core.private import (
    all_keys,
    backend_count,
    bits_of_keys,
    functionality_of,
    is_alias_key,
    keys_of,
    names_of_keys,
    operators_with,
    require,
)
from ...subclasses.logging_tensor.phase import current_phase
from ...subclasses.logging_tensor.record import describe_call
from .decision import Decision
from .keyset import key_sets, operands
from .operators import overload_of
from .slots import Kernel, Slot, slots_of


class UnknownKeyError(LookupError):
    """There is no dispatch key of that name. The text has near ones."""


@dataclass(frozen=True)
class TensorKeys:
    """``keys``: the runtime keys, the lowest priority first. ``functionalities``: the functionality of each; one that
    differs from its key is per backend, and makes a slot with each backend bit. ``bits``: the set as C++ holds it.
    """

    keys: tuple[str, ...]
    functionalities: tuple[str, ...]
    bits: int
    backends: int

    @property
    def backend_bits(self) -> str:
        """The lower bits, one a backend, as binary digits."""
        return f"{self.bits & ((1 << self.backends) - 1):0{self.backends}b}"

    @property
    def functionality_bits(self) -> str:
        """The upper bits, one a functionality, as binary digits."""
        return f"{self.bits >> self.backends:b}"

    def __str__(self) -> str:
        lines = [f"backend bits {self.backend_bits}, functionality bits {self.functionality_bits}"]
        for key, functionality in zip(reversed(self.keys), reversed(self.functionalities), strict=True):
            made = "" if functionality == key else f"  = {functionality}, for the backend bit"
            lines.append(f"  {key}{made}")
        return "\n".join(lines)


def dispatch_keys(tensor: torch.Tensor) -> TensorKeys:
    """The key set that ``tensor`` carries.

    >>> import torch
    >>> dispatch_keys(torch.ones(2)).keys
    ('CPU', 'ADInplaceOrView', 'AutogradCPU', 'AutocastCPU')

    Raises:
        UnseenError: this build of torch doesn't show it.
    """
    require("key sets", "the bits of key sets")
    keys = keys_of(tensor)
    names = names_of_keys(keys)
    return TensorKeys(names, tuple(functionality_of(name) for name in names), bits_of_keys(keys), backend_count())


@dataclass(frozen=True)
class Table:
    """The computed dispatch table of one overload. Index it by runtime key; iterating gives the slots."""

    op: str
    slots: dict[str, Slot]

    def __getitem__(self, key: str) -> Slot:
        """Raises ``UnknownKeyError`` for what is no key. A key without kernel has a slot that says so."""
        return self.slots.get(_checked(key), Slot(key, Kernel.MISSING))

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots.values())

    def groups(self) -> dict[tuple[Kernel, str], list[str]]:
        """The keys whose slots hold the same kernel, by kind and place."""
        found: dict[tuple[Kernel, str], list[str]] = {}
        for slot in self.slots.values():
            found.setdefault((slot.kernel, slot.place), []).append(slot.key)
        return found

    def missing(self) -> list[str]:
        """The runtime keys for which there is no kernel and no fallback."""
        return [key for key in all_keys() if key not in self.slots and not is_alias_key(key)]

    def __str__(self) -> str:
        lines = [f"dispatch table of {self.op}"]
        for (kernel, place), keys in self.groups().items():
            lines.append(f"  {kernel.value:<24} {REASONS[kernel]}\n    {place}\n    {' '.join(keys)}")
        return "\n".join(lines)


# Why a slot holds what it does: the rule by which the dispatcher fills its tables.
REASONS = {
    Kernel.BACKEND: "registered for this key itself",
    Kernel.EXPLICIT: "alias CompositeExplicitAutograd: for all backends that have no kernel of their own",
    Kernel.IMPLICIT: "alias CompositeImplicitAutograd: made of other operators, which bring their derivatives",
    Kernel.AUTOGRAD: "alias Autograd, or registered for this key: records a node and redispatches below",
    Kernel.AUTOCAST: "registered for this key: casts, and redispatches below",
    Kernel.VIEW: "registered for this key: tracks views and versions, and redispatches below",
    Kernel.FALLBACK: "no kernel: the fallback of this key, for all operators",
    Kernel.FALLTHROUGH: "passed over: the key is not even looked at",
    Kernel.OTHER: "registered for this key itself",
    Kernel.PYTHON: "asks dispatch modes, then wrapper classes",
    Kernel.MISSING: "no kernel, no alias, no fallback: a call that takes it is an error",
}


def explain_table(op: str) -> Table:
    """What each slot of an operator holds, where it was registered, and by which rule. ``print`` shows it in groups.

    Raises:
        UnknownOperatorError: there is no such operator; the text has near ones.
        UnseenError: this build of torch doesn't show it.

    >>> explain_table("aten::linear")["AutogradCPU"].kernel.value
    'composite implicit kernel'
    """
    require("dispatch tables")
    name = overload_of(op).name()
    return Table(name, slots_of(name))


def why(op: str, *args: Any, **kwargs: Any) -> Decision:
    """Which slot a call of ``op`` with these arguments takes, here and now. Nothing runs: all of it is computed.

    Raises:
        UnknownOperatorError: there is no such operator; the text has near ones.
        UnseenError: this build of torch doesn't show it.

    >>> import torch
    >>> decision = why("aten::relu", torch.ones(2))
    >>> decision.key, decision.kernel.value
    ('AutogradCPU', 'autograd kernel')
    """
    require("dispatch tables", "key sets")
    overload = overload_of(op)
    name, table = overload.name(), slots_of(overload.name())
    inputs, keywords = describe_call(args, kwargs)
    decision = Decision(0, 0, "dispatcher", name, current_phase(), inputs, keywords, observed=False)
    decision.keys = key_sets(operands(overload, args, kwargs), table)
    decision.key = decision.source = decision.keys.highest
    if decision.key is not None:
        decision.slot = table.get(decision.key, Slot(decision.key, Kernel.MISSING))
    return decision


def which_ops(key: str) -> list[str]:
    """The operators for which a kernel is registered under exactly this key, alias keys included.

    Raises:
        UnknownKeyError: there is no such key; the text has near ones.
        UnseenError: this build of torch doesn't show it.
    """
    require("what is registered")
    return sorted(operators_with(_checked(key)))


def _checked(key: str) -> str:
    keys = all_keys()
    if key not in keys:
        near = ", ".join(get_close_matches(key, keys, 4, 0.5)) or "AutogradCPU, CPU, CompositeImplicitAutograd"
        raise UnknownKeyError(f"there is no dispatch key {key!r}. Near: {near}.")
    return key
