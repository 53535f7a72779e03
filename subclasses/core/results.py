"""Holds a rule's result against the schema: a wrong one would be a lost write, or None in place of a tensor."""

from __future__ import annotations

from typing import Any

import torch

from .errors import RuleResultError
from .fields import inner_tensors, is_wrapper
from .private import schema_of
from .rules import Rule
from .schema import OpFacts, Result, value_of


def check_result(
    cls: type, facts: OpFacts, rule: Rule, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuses a result that the op can't have.

    Raises:
        RuleResultError: another number of results, no tensor where the schema has one, or a new tensor where the op
            returns the argument that it wrote to.
    """
    results = facts.results
    values = (out,) if len(results) == 1 else out
    if not isinstance(values, (tuple, list)) or len(values) != len(results):
        got = f"{len(values)} results" if isinstance(values, (tuple, list)) else f"one {type(out).__name__}"
        raise _error(cls, facts, rule, f"returned {got}, the op has {len(results)}")
    for result, value in zip(results, values, strict=True):
        problem = _problem(result, value, args, kwargs)
        if problem:
            raise _error(cls, facts, rule, problem)


def _problem(result: Result, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    if result.same_as is not None:
        written = value_of(result.same_as, args, kwargs)
        if value is None or value is written or _is_inner(value, written):
            return None
        return (
            f"returned a new {type(value).__name__} where the op returns its argument {result.same_as.name!r}: write "
            "to the inner tensors in place, and return the argument"
        )
    if not result.tensor or result.optional:
        return None
    if result.listed:
        whole = isinstance(value, (tuple, list)) and all(isinstance(v, torch.Tensor) for v in value)
        return None if whole else f"returned a {type(value).__name__} where the op returns a list of tensors"
    if isinstance(value, torch.Tensor):
        return None
    forgotten = " (a `return` forgotten?)" if value is None else ""
    return f"returned a {type(value).__name__} where the op returns a tensor{forgotten}"


def _is_inner(value: Any, wrapper: Any) -> bool:
    return is_wrapper(wrapper) and any(value is t for t in inner_tensors(wrapper))


def _error(cls: type, facts: OpFacts, rule: Rule, problem: str) -> RuleResultError:
    return RuleResultError(facts.op, cls, rule.where, f"{problem}.\n  schema: {schema_of(facts.op)}")
