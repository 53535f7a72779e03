"""A dispatcher in some fifty lines, beside PyTorch's own: for the same calls the two take the same path.

Run it: python examples/tiny_dispatcher.py

A tensor carries a set of keys. A call unites the sets of its arguments, adds what the thread includes, takes away what
it excludes and what the operator passes over, and the highest key left picks a slot of the operator's table. A kernel
may call its operator again, below itself: so autograd records, and then lets the backend compute.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lamina.modes import DispatcherTrace

OP, NODE = "aten::hardsigmoid", "HardsigmoidBackward0"
KEYS = ["CPU", "SparseCPU", "BackendSelect", "ADInplaceOrView", "AutogradCPU", "AutocastCPU"]  # the lowest first
FALLTHROUGH = "fallthrough"
FALLBACKS: dict[str, Any] = {"BackendSelect": FALLTHROUGH, "ADInplaceOrView": FALLTHROUGH}  # of the backends
EVER = "ADInplaceOrView AutogradCPU AutocastCPU"


class MissingKernelError(NotImplementedError):
    """No kernel for the key, and no fallback."""


@dataclass
class Tiny:
    """The dispatcher of one thread. ``path``: the keys that its calls took."""

    included: set[str]
    records: bool
    excluded: frozenset[str] = frozenset({"AutocastCPU"})
    path: list[str | None] = field(default_factory=list)

    def call(self, table: dict[str, Any], *keys: str, below: str | None = None) -> Any:
        slots = FALLBACKS | table
        left = ({key for each in keys for key in each.split()} | self.included) - self.excluded
        left = {key for key in left if slots.get(key) != FALLTHROUGH}
        if below is not None:
            left = {key for key in left if KEYS.index(key) < KEYS.index(below)}
        key = max(left, key=KEYS.index)
        self.path.append(key)
        if key not in slots:
            raise MissingKernelError(f"Could not run '{OP}' with arguments from the '{key}' backend")
        return slots[key](self, *keys)


def autograd(tiny: Tiny, *keys: str) -> str | None:
    """Calls the operator below itself, and returns the node, where the thread records."""
    tiny.call(TABLE, *keys, below="AutogradCPU")
    return NODE if tiny.records else None


TABLE: dict[str, Any] = {"CPU": lambda *_: None, "AutogradCPU": autograd}


def real(x: Tensor) -> tuple[list[str | None], str | None]:
    """The keys that PyTorch took, and the node that it recorded, or the error."""
    result: str | None = None
    with DispatcherTrace() as trace:
        try:
            node = torch.ops.aten.hardsigmoid.default(x).grad_fn
            result = type(node).__name__ if node is not None else None
        except NotImplementedError as error:
            result = str(error).partition(".")[0]
    return [each.key for each in trace.decisions if each.op == OP and each.key], result


def tiny(keys: str, records: bool, included: str) -> tuple[list[str | None], str | None]:
    """The same, of the tiny one."""
    dispatcher = Tiny(set(included.split()), records)
    try:
        return dispatcher.path, dispatcher.call(TABLE, keys)
    except MissingKernelError as error:
        return dispatcher.path, str(error)


CASES: list[tuple[str, Callable[[], Any], Callable[[], Tensor], tuple[str, bool, str]]] = [
    ("plain", nullcontext, lambda: torch.ones(2), (f"CPU {EVER}", False, "BackendSelect ADInplaceOrView")),
    ("grad", nullcontext, lambda: torch.ones(2).requires_grad_(), (f"CPU {EVER}", True, "BackendSelect")),
    ("no_grad", torch.no_grad, lambda: torch.ones(2).requires_grad_(), (f"CPU {EVER}", False, "BackendSelect")),
    ("inference_mode", torch.inference_mode, lambda: torch.ones(2), ("CPU AutocastCPU", False, "BackendSelect")),
    ("missing", nullcontext, lambda: torch.eye(2).to_sparse(), (f"SparseCPU {EVER}", False, "BackendSelect")),
]

if __name__ == "__main__":
    for name, scope, make, given in CASES:
        with scope():
            one, other = real(make()), tiny(*given)
        print(f"{name:<15} {one}\n{'the tiny one':<15} {other}{'' if one == other else '   DIFFERS'}")
