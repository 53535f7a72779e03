"""The ledger of a step: which storages came and went, in order, and what each of them was."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ...subclasses.core.fields import inner_tensors
from ...subclasses.core.private import strided_parts
from ...subclasses.fake_like import FakeLikeTensor
from .in_place import InPlace

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, INPUTS, TEMPORARIES = "activations", "inputs and buffers", "temporaries"
CATEGORIES = (PARAMETERS, GRADIENTS, STATE, INPUTS, ACTIVATIONS, TEMPORARIES)
"""What a storage was, in its whole life: the first of these that is true of it.

*Parameters*: an ``nn.Parameter`` uses it. *Gradients*: autograd accumulates the gradient of a leaf in it. *Optimizer
state*: it is in the state of an optimizer after a step. *Activations*: made in the forward (or in a forward that is
computed anew for the backward), and used by the backward. *Inputs and buffers*: buffers of modules, what was there
before the step and is none of the others, and what the step makes of no other tensor outside of modules, such as its
batch. *Temporaries*: the rest, with what the program itself holds on to.
"""


class Step(NamedTuple):
    """One operator of the step."""

    number: int
    op: str
    phase: str
    module: str | None
    site: str | None


class Block:
    """A storage: its device, and what is known of it. ``shown``: the bytes that it shows, which may be less than it
    has; ``first``: its bytes before it was resized; ``recorded``: how it came to be, by phase; ``node``: the number of
    the autograd node that made it, if one did."""

    __slots__ = ("category", "device", "first", "nbytes", "node", "recorded", "saved", "shown")

    def __init__(self, nbytes: int, device: torch.device, recorded: str, shown: int) -> None:
        self.nbytes, self.device, self.recorded, self.shown = nbytes, device, recorded, shown
        self.node: int | None = None
        self.first = nbytes
        self.category: str | None = None
        self.saved = False

    @property
    def kind(self) -> str:
        """One of CATEGORIES."""
        return self.category or (ACTIVATIONS if self.saved else TEMPORARIES)


class Event(NamedTuple):
    """A block comes (bytes above 0) or goes, while the operator of that number runs or after it."""

    number: int
    block: Block
    nbytes: int


class _Reference(weakref.ref[Any]):
    __slots__ = ("key",)
    key: int


class Ledger:
    """Blocks by storage, and their events in order. What is alive is known by weak references alone."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.before: list[Block] = []
        self.index = -1
        self._blocks: dict[int, tuple[Block, _Reference]] = {}
        self._lock = threading.RLock()
        self._replaced: dict[Block, tuple[Event, InPlace]] = {}
        self._closed = False
        self.last: torch.device | None = None  # where there was a tensor before

    def blocks(self, tensor: torch.Tensor, recorded: str | None = None, least: int = 0) -> Iterator[Block]:
        """The blocks that hold a tensor, wrappers taken apart. ``recorded``: how new ones come to be; None: they were
        there before. ``least``: the bytes that a new one has, if it shows less."""
        for leaf, device in leaves(tensor):
            storage = leaf.untyped_storage()
            nbytes = storage.nbytes()
            with self._lock:
                known = self._blocks.get(id(storage))
                if known is not None and known[0].shown == nbytes:
                    yield known[0]
                elif known is not None:
                    yield self._resized(known[0], nbytes)
                elif nbytes:
                    yield self._new(storage, self._placed(device), recorded, least)

    def _placed(self, device: torch.device) -> torch.device:
        """Compiled code works on carriers, which claim nothing: they are where the tensors are that went into it."""
        if device.type != "meta":
            self.last = device
        return self.last or device

    def _new(self, storage: torch.UntypedStorage, device: torch.device, recorded: str | None, least: int) -> Block:
        shown = storage.nbytes()
        block = Block(max(shown, least), device, recorded or "", shown)
        reference = _Reference(storage, self._freed)
        reference.key = id(storage)
        self._blocks[reference.key] = block, reference
        if recorded is None:
            block.category = INPUTS
            self.before.append(block)
        else:
            self.events.append(Event(self.index, block, block.nbytes))
        return block

    def _resized(self, block: Block, nbytes: int) -> Block:
        self.events.append(Event(self.index, block, -block.nbytes))
        block.nbytes = block.shown = nbytes
        self.events.append(Event(self.index, block, nbytes))
        return block

    def _freed(self, reference: _Reference) -> None:
        with self._lock:
            block, _ = self._blocks.pop(reference.key)
            if self._closed:
                return
            event = Event(self.index, block, -block.nbytes)
            made, _ = self._replaced.pop(block, (None, None))
            if made is not None:
                place = next(n for n in reversed(range(len(self.events))) if self.events[n] is made)
                self.events.insert(place, event._replace(number=made.number))
            else:
                self.events.append(event)

    def replaced(self, result: Block, first: Block, how: InPlace) -> None:
        """An operator has made ``result``, where C++ would have written into ``first`` if nobody else had that. If it
        is freed in time, nobody had: the result takes its place."""
        if result is not first and self.events and self.events[-1].block is result:
            self._replaced[first] = self.events[-1], how

    def next(self) -> int:
        """Another operator begins: its index."""
        if self._replaced:
            lasting = InPlace.AT_THE_END
            self._replaced = {block: found for block, found in self._replaced.items() if found[1] is lasting}
        self.index += 1
        return self.index

    def close(self) -> None:
        """What is freed from now on is no part of the step."""
        self._closed = True

    @property
    def alive(self) -> list[Block]:
        """The blocks that are there now."""
        return [block for block, _ in self._blocks.values()]


def is_opaque(tensor: torch.Tensor) -> bool:
    """Whether it is a wrapper that computes with tensors inside: one of lamina, or any other that torch can flatten."""
    return hasattr(type(tensor), "__tensor_flatten__") and not isinstance(tensor, FakeLikeTensor)


def leaves(tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.device]]:
    """The tensors that own storage, real or claimed, and where they are: wrappers taken apart. The storage of a
    FakeLikeTensor that came out of compiled code is that of its carrier, of another one its own, if it has a carrier
    yet or not."""
    if isinstance(tensor, FakeLikeTensor):
        yield vars(tensor).get("meta", tensor), tensor.device
    elif is_opaque(tensor):
        for inner in inner_tensors(tensor):
            yield from leaves(inner)
    else:
        yield from ((part, part.device) for part in strided_parts(tensor))
