"""A plan: how the results of a call are made of its arguments, without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..core.private import share_storage, storage_id
from .metadata import Metadata, metadata_of

Args = tuple[Any, ...]
Find = Callable[[Args, dict[str, Any]], Any]
Run = Callable[[Args, dict[str, Any]], Any]
Build = Callable[[Metadata, "int | None"], Run]
Facts = Any


class Plan(NamedTuple):
    """``run`` makes the results of a call of its arguments; ``facts`` says what they are, to be read and compared."""

    run: Run
    facts: Facts


class Place(NamedTuple):
    """An argument that is a tensor: how to find it in a call, and what stood for it when the call was computed."""

    find: Find
    tensor: torch.Tensor
    storage: int  # before the call
    position: int | None = None  # where it is one by position

    @property
    def moved(self) -> bool:
        """Whether the call has put it into another storage."""
        return storage_id(self.tensor) != self.storage


def places_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Place]:
    """All tensors among the arguments, also those in lists. Those with a name first: of a tensor that is read, too, in
    this call, the result is what is given as ``out=``."""
    found = [Place(_named(path), t, storage_id(t)) for path, t in _tensors(dict(kwargs), ())]
    return found + [
        Place(_at(path), tensor, storage_id(tensor), path[0] if len(path) == 1 else None)
        for path, tensor in _tensors(args, ())
    ]


def _tensors(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, (*path, key))


def _at(path: tuple[Any, ...]) -> Find:
    if len(path) == 1:
        (first,) = path
        return lambda args, _: args[first]
    return lambda args, _: _followed(args, path)


def _named(path: tuple[Any, ...]) -> Find:
    return lambda _, kwargs: _followed(kwargs, path)


def _followed(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def plan_of(result: Any, places: Sequence[Place], build: Build) -> Plan:
    """How to make what ``result`` is, from the arguments that ``places`` find. ``build(metadata, base)``: what makes a
    new tensor of such metadata, in a storage of its own, or in that of the argument at the position ``base``."""
    return _Planner(places, build).plan(result)


class _Planner:
    def __init__(self, places: Sequence[Place], build: Build) -> None:
        self.places, self.build = places, build

    def plan(self, value: Any) -> Plan:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)) and any(True for _ in _tensors(value, ())):
            return self._several(value)
        return Plan(lambda args, kwargs: value, ("value", value))

    def _tensor(self, value: torch.Tensor) -> Plan:
        for index, place in enumerate(self.places):
            if place.tensor is value:
                return Plan(place.find, ("argument", index))
        metadata = metadata_of(value, value.device)
        own = storage_id(value)
        for index, place in enumerate(self.places):
            if place.storage == own:
                return Plan(self._viewing(place, metadata), ("view of argument", index, metadata))
        return Plan(self.build(metadata, None), ("new", metadata))

    def _viewing(self, place: Place, metadata: Metadata) -> Run:
        if place.position is not None:
            return self.build(metadata, place.position)
        make, find = self.build(metadata, None), place.find

        def view_of_found(args: Args, kwargs: dict[str, Any]) -> Any:
            view = make(args, kwargs)
            share_storage(view, find(args, kwargs))
            return view

        return view_of_found

    def _several(self, values: Any) -> Plan:
        """Results may share storage with each other: the first of them has it, the others are views of that one."""
        plans = [self.plan(value) for value in values]
        runs = [plan.run for plan in plans]
        kind = list if isinstance(values, list) else tuple
        sharing = self._sharing(values)

        def run(args: Args, kwargs: dict[str, Any]) -> Any:
            made = [each(args, kwargs) for each in runs]
            for index, first in sharing:
                share_storage(made[index], made[first])
            return kind(made)

        return Plan(run, (*(plan.facts for plan in plans), sharing))

    def _sharing(self, values: Any) -> list[tuple[int, int]]:
        """The results that share a storage which is that of no argument: each with the first of them."""
        firsts: dict[int, int] = {}
        sharing: list[tuple[int, int]] = []
        for index, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                own = storage_id(value)
                first = firsts.setdefault(own, index)
                if first != index and not any(place.storage == own for place in self.places):
                    sharing.append((index, first))
        return sharing
