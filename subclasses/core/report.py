"""Turns a missing rule into an error that says what was called, what is near, and which line to write."""

from __future__ import annotations

import difflib
import keyword
from typing import Any

import torch

from .errors import MissingRuleError
from .fields import is_wrapper_class
from .rules import RuleBook
from .schema import Kind
from .table import Entry, How


def missing_rule(
    entry: Entry, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> MissingRuleError:
    """The error for an op that no class among ``types`` answers."""
    classes = [t for t in types if is_wrapper_class(t)] or [entry.cls]
    why = "its fallback is ERROR" if entry.how is How.MISSING else f"the rule at {entry.where} declined"
    if len(types) > 1:
        why = "every class among the arguments declined"
    arguments = ", ".join([*map(describe, args), *(f"{k}={describe(v)}" for k, v in kwargs.items())])
    return MissingRuleError(entry.op, classes, why, arguments, _near(entry), _advice(entry))


def describe(value: Any) -> str:
    """One argument in a few characters: class, dtype and shape of tensors, also inside lists. Calls no op."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{type(value).__name__}({dtype}{list(value.shape)})"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(describe, value)) + "]"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _near(entry: Entry) -> str:
    registered = {
        str(key): rule for book in _books(entry.cls) for key, rule in book.items() if not isinstance(key, Kind)
    }
    base = str(entry.op).partition(".")[2]
    names = {name: name.partition(".")[2] for name in registered}
    close = difflib.get_close_matches(base, list(names.values()), n=3, cutoff=0.4)
    lines = [f"    {name}  {registered[name].where}\n" for name in names if names[name] in close]
    return "  nearest rules:\n" + "".join(lines) if lines else ""


def _books(cls: type) -> list[RuleBook]:
    return [c.__dict__["_rules"] for c in cls.__mro__ if "_rules" in c.__dict__]


def _advice(entry: Entry) -> str:
    names = [a.name + "_" if keyword.iskeyword(a.name) else a.name for a in entry.facts.arguments]
    first = next((i for i, a in enumerate(entry.facts.arguments) if a.keyword_only), None)
    if first is not None:
        names.insert(first, "*")
    name = str(entry.op).split(".")[1].strip("_")
    return (
        f"write: @{entry.cls.__name__}.implements(torch.ops.{entry.op})\n"
        f"         def {name}(op, {', '.join(names)}): ...\n"
        f"  or set `fallback = Fallback.PLAIN` in the class, to run it on decoded values."
    )
