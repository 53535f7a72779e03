"""The time line of a step: its events replayed, for what was alive when, and what it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .ledger import CATEGORIES, Event, Ledger, Step


class Moment(NamedTuple):
    """The most bytes that were alive while an operator ran, by category in the order of CATEGORIES. Number -1: before
    the first."""

    number: int
    nbytes: tuple[int, ...]

    @property
    def total(self) -> int:
        """All categories."""
        return sum(self.nbytes)


@dataclass(frozen=True)
class Peak:
    """When most was alive: bytes by category, and the operator."""

    nbytes: int
    by_category: dict[str, int]
    step: Step | None


def events_of(ledger: Ledger) -> list[Event]:
    """All events, those that made what was there before first."""
    return [*(Event(-1, block, block.first) for block in ledger.before), *ledger.events]


def most_by_device(events: Iterable[Event]) -> dict[torch.device, int]:
    """The most bytes that were alive on each device."""
    now: dict[torch.device, int] = {}
    most: dict[torch.device, int] = {}
    for event in events:
        device = event.block.device
        now[device] = now.get(device, 0) + event.nbytes
        most[device] = max(most.get(device, 0), now[device])
    return most


def moments_of(events: Iterable[Event]) -> Iterator[Moment]:
    """One for each operator at which anything came or went."""
    place = {name: number for number, name in enumerate(CATEGORIES)}
    now = [0] * len(CATEGORIES)
    most, index = tuple(now), -1
    for event in events:
        if event.number != index:
            yield Moment(index, most)
            most, index = tuple(now), event.number
        now[place[event.block.kind]] += event.nbytes
        if sum(now) >= sum(most):
            most = tuple(now)
    yield Moment(index, most)


def peak_of(moments: Sequence[Moment], steps: Sequence[Step]) -> Peak:
    """The first of the highest moments."""
    highest = max(moments, key=lambda moment: moment.total)
    step = steps[highest.number] if highest.number >= 0 else None
    return Peak(highest.total, dict(zip(CATEGORIES, highest.nbytes, strict=True)), step)
