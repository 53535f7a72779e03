"""Classes by name. A name that a file holds is looked up among the classes that exist: nothing is ever imported for it,
since importing runs code, and a checkpoint may come from anyone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ..core.copying import classes_in, context_types
from ..core.declaration import evaluate
from ..core.wrapper import WrapperTensor
from .errors import CheckpointError


def name_of(cls: type) -> str:
    """``module:qualname``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def wrapper_class(name: str, entry: str) -> Any:
    """The lamina type of that name.

    Raises:
        CheckpointError: there is none in this process.
    """
    # A class that was defined again, in a notebook, say, counts as its last definition.
    found = {name_of(cls): cls for cls in _below(WrapperTensor)}.get(name)
    if found is not None:
        return found
    module, _, qualname = name.partition(":")
    if module == "__main__":
        advice = f"It was defined in the script that saved: define {qualname} in this one, or in a module of its own."
    else:
        advice = f"Write `import {module}` first, if you trust it: lamina imports nothing that a file names."
    raise CheckpointError(entry, f"no lamina type {name} exists in this process", advice)


def value_classes(cls: Any) -> dict[str, type]:
    """The classes of the author's that a context value of ``cls`` may have, by name: those that its declaration names,
    their subclasses, and those of their fields."""
    found: dict[str, type] = {}
    todo = sorted(context_types(cls), key=name_of)
    while todo:
        current = todo.pop()
        if current.__module__ == "builtins" or found.get(name_of(current)) is current:
            continue
        found[name_of(current)] = current
        todo += type.__subclasses__(current)
        if is_dataclass(current):
            todo += _classes_of_fields(current)
    return found


def _classes_of_fields(cls: Any) -> Iterable[type]:
    for field in fields(cls):
        yield from classes_in(evaluate(cls, field.name, field.type) if isinstance(field.type, str) else field.type)


def _below(cls: Any) -> Iterator[type]:
    for child in type.__subclasses__(cls):
        yield child
        yield from _below(child)
