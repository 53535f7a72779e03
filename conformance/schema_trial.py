"""One call of an operator, held against its schema: what it says is written is, and nothing else; what it says is a
view shares memory, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..subclasses.core.private import is_alias
from ..subclasses.core.schema import Argument, Result, facts_of, value_of
from .calls import Call, Slot
from .outcome import MismatchError
from .subject import Kind, Subject, leaves_of

Tensors = Mapping[str, torch.Tensor]


def obeys_schema(subject: Subject, call: Call, instances: Tensors, plains: Tensors) -> None:
    """Run it on ``instances``, and on ``plains``, and compare what became of each operand and of the results.

    Raises:
        MismatchError: they differ, or the call raised something.
    """
    facts = facts_of(call.function)
    expected = call(plains)
    got = call.on(instances, expected)
    written = {slot for argument in facts.written for slot in _slots(argument, call)}
    for slot in {slot for argument in facts.tensors for slot in _slots(argument, call)}:
        text = f"{call.text}: {slot} {'is written' if slot in written else 'is only read'}"
        subject.stored(text, instances[slot.name], plains[slot.name], loosely=slot in written)
    results = got if len(facts.results) > 1 else (got,)
    wanted = expected if len(facts.results) > 1 else (expected,)
    for result, value, right in zip(facts.results, results, wanted, strict=False):
        sources = _sources(result, call, instances)
        if result.same_as:
            _is_the_argument(call, value, sources)
        else:
            subject.same(call.text, value, right, loosely=True)
            _aliases(call, value, sources, [each for each in instances.values() if all(each is not s for s in sources)])


def operands(subject: Subject, *names: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Instances of shape (4, 8) by these names, and the plain tensors of their values."""
    plain = {name: subject.plain(4, 8, seed=seed) for seed, name in enumerate(names)}
    instances = {name: subject.wrap(each) for name, each in plain.items()}
    if subject.kind is Kind.FAKE:
        return instances, {name: each.clone() for name, each in plain.items()}
    return instances, {name: subject.values(each).clone() for name, each in instances.items()}


def share_memory(one: Any, other: Any) -> bool:
    """Whether torch takes the two for aliases, or inner tensors of both are."""
    if is_alias(one, other):
        return True
    pairs = ((a, b) for a in leaves_of(one) for b in leaves_of(other))
    return any(a.numel() and b.numel() and is_alias(a, b) for a, b in pairs)


def _slots(argument: Argument, call: Call) -> Iterator[Slot]:
    value = value_of(argument, call.args, dict(call.kwargs))
    yield from (each for each in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(each, Slot))


def _sources(result: Result, call: Call, instances: Tensors) -> list[torch.Tensor]:
    argument = result.same_as or result.view_of
    return [] if argument is None else [instances[slot.name] for slot in _slots(argument, call)]


def _is_the_argument(call: Call, value: Any, sources: list[torch.Tensor]) -> None:
    for one, source in zip(value if isinstance(value, (list, tuple)) else [value], sources, strict=False):
        if one is not source:
            raise MismatchError(f"{call.text} is x", "the tensor itself, as the schema says", "another object")


def _aliases(call: Call, value: Any, sources: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if not isinstance(one, torch.Tensor):
            continue
        for source in sources:
            if not is_alias(one, source):
                text = "a view: it shares the storage of x, as torch's alias analysis sees it"
                raise MismatchError(call.text, text, "a tensor with a storage of its own")
        for other in others:
            if one.numel() and share_memory(one, other):
                raise MismatchError(call.text, "a new tensor, as the schema says", "one that shares memory with x")
