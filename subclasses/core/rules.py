"""Rules: what an author registers with ``implements``. Keys and signatures are checked here, at registration."""

from __future__ import annotations

import difflib
import functools
import inspect
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .errors import RegistrationError, RuleConflictError
from .private import OpOverload, OpOverloadPacket, schema_of
from .schema import Argument, Kind, OpFacts, facts_of

Key = OpOverload | Kind


@dataclass(frozen=True)
class Rule:
    """A function that answers for an overload or a kind. ``call(op, *args, **kwargs)`` binds names and defaults."""

    key: Key
    function: Callable[..., Any]
    call: Callable[..., Any]
    where: str  # file:line

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


class RuleBook(dict[Key, Rule]):
    """The rules that one class registered itself. Inheritance is the resolver's business."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner

    def add(self, keys: tuple[Any, ...], function: Callable[..., Any], *, override: bool) -> None:
        """Registers ``function`` for each of ``keys``, or for none of them if one is wrong."""
        rules = [_rule(key, function) for key in keys]
        for rule in rules:
            if rule.key in self and not override:
                raise RuleConflictError(self.owner, rule.key, self[rule.key].where, rule.where)
        self.update({rule.key: rule for rule in rules})


def check_keys(keys: tuple[Any, ...]) -> None:
    """Refuses what is no key of a rule, before the rule is there: ``@Cls.implements`` without parentheses gets here."""
    if not keys:
        raise RegistrationError("implements() needs at least one operator, e.g. implements(torch.ops.aten.mm.default)")
    for key in keys:
        if not isinstance(key, Kind):
            _check_overload(key)


def place_of(function: Callable[..., Any]) -> str:
    """``file:line`` of a function's definition."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "<built in>"


def _rule(key: Any, function: Callable[..., Any]) -> Rule:
    check_rule(function)
    if isinstance(key, Kind):
        _check_kind_signature(key, function)
        return Rule(key, function, function, place_of(function))
    facts = facts_of(_check_overload(key))
    return Rule(key, function, _bound(facts, function), place_of(function))


def check_rule(function: Any) -> None:
    """Refuses what can't be a rule: no function, one without a name, one that takes no first argument."""
    if not callable(function):
        raise RegistrationError(f"a rule is a function, got {function!r}")
    if getattr(function, "__name__", "_") in ("_", "<lambda>"):
        raise RegistrationError(
            f"the rule at {place_of(function)} has no name. Define it as `def name(op, ...)`: tables and logs show it."
        )
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise RegistrationError(
            f"the rule at {place_of(function)} takes no first argument: define it as `def name(op, ...)`"
        )


def _check_overload(key: Any) -> OpOverload:
    if isinstance(key, OpOverloadPacket):
        choices = ", ".join(f"{key}.{name}" for name in key.overloads())
        raise RegistrationError(f"{key} is a packet of overloads, and a rule answers for one. Choose from: {choices}")
    if isinstance(key, str):
        raise RegistrationError(f"{key!r} is a string. Write the overload itself, e.g. {_overload_named(key)}")
    if not isinstance(key, OpOverload):
        name = getattr(key, "__name__", repr(key))
        raise RegistrationError(
            f"{name} is no operator overload (torch.ops.aten.mm.default) and no Kind. A Python function such as "
            "torch.nn.functional.linear never reaches __torch_dispatch__ under its own name: register it with "
            "implements_function, or register the overloads that it is made of."
        )
    if facts_of(key).composite:
        raise RegistrationError(
            f"{key} is composite: torch takes it apart before dispatch, so this rule would run under inference_mode "
            f"only. Register its pieces{_pieces_of(key)}."
        )
    return key


def _overload_named(text: str) -> str:
    name, _, overload = text.replace("::", ".").removeprefix("torch.ops.").removeprefix("aten.").partition(".")
    close = difflib.get_close_matches(name, dir(torch.ops.aten) + dir(torch), n=1)
    return f"torch.ops.aten.{close[0] if close else name}.{overload or 'default'}"


_PIECES = {
    "linear": "mm.default, addmm.default and t.default",
    "matmul": "mm.default, mv.default, dot.default, bmm.default",
    "reshape": "view.default, _unsafe_view.default and clone.default",
    "flatten": "view.default and clone.default",
    "contiguous": "clone.default",
    "to": "_to_copy.default",
    "chunk": "split.Tensor",
    "einsum": "bmm.default, sum.dim_IntList and permute.default",
    "layer_norm": "native_layer_norm.default",
    "dropout": "native_dropout.default",
    "batch_norm": "native_batch_norm.default",
    "conv2d": "convolution.default",
    "type_as": "_to_copy.default",
    "narrow": "slice.Tensor",
}


def _pieces_of(op: OpOverload) -> str:
    name = schema_of(op).name.partition("::")[2]
    known = _PIECES.get(name)
    return f": torch.ops.aten.{known}" if known else " (lamina.modes.DispatchLog shows which they are)"


def _check_kind_signature(kind: Kind, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(object(), (), {})
    except TypeError as error:
        raise RegistrationError(
            f"a rule for {kind} takes (op, args, kwargs), and {place_of(function)} does not: {error}"
        ) from error


def _bound(facts: OpFacts, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with the schema's keywords and defaults, or an error where its signature is not the schema's."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (_POSITIONAL, _ONLY_POSITIONAL):
        raise _mismatch(facts, function, "the first parameter has to take the overload")
    named = [p for p in parameters[1:] if p.kind not in (_STAR, _STARS)]
    rest = facts.arguments[len(named) :]
    stars = {p.kind for p in parameters}
    extra = [p.name for p in named[len(facts.arguments) :]]
    unbound = [a.name for a in rest if (_STARS if a.keyword_only else _STAR) not in stars]
    for parameter, argument in zip(named, facts.arguments, strict=False):
        _check_parameter(facts, function, parameter, argument)
    if unbound or extra:
        amiss = f"misses {', '.join(unbound)}" if unbound else f"no {', '.join(extra)} there"
        raise _mismatch(
            facts, function, f"it takes {len(named)} arguments, the schema has {len(facts.arguments)}: {amiss}"
        )
    renamed, missing_defaults = {}, {}
    for parameter, argument in zip(named, facts.arguments, strict=False):
        if parameter.name != argument.name:
            renamed[argument.name] = parameter.name
        if argument.has_default and parameter.default is inspect.Parameter.empty:
            missing_defaults[parameter.name] = (argument.index, argument.default)
    if not renamed and not missing_defaults:
        return function
    return _adapted(function, renamed, missing_defaults)


_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_STAR, _STARS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_ONLY_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY


def _check_parameter(
    facts: OpFacts, function: Callable[..., Any], parameter: inspect.Parameter, argument: Argument
) -> None:
    may_rename = argument.name == "self" or keyword.iskeyword(argument.name)
    if parameter.name != argument.name and not may_rename:
        raise _mismatch(facts, function, f"parameter {parameter.name!r} stands where the schema has {argument.name!r}")
    if parameter.kind is _ONLY_POSITIONAL:
        raise _mismatch(facts, function, f"{parameter.name!r} can't be passed by keyword")
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not argument.keyword_only:
        raise _mismatch(facts, function, f"{parameter.name!r} is keyword-only, and the schema passes it by position")
    if parameter.default is inspect.Parameter.empty:
        return
    if not argument.has_default or parameter.default != argument.default:
        default = argument.default if argument.has_default else "none"
        raise _mismatch(
            facts, function, f"{parameter.name!r} has the default {parameter.default!r}, the schema says {default}"
        )


def _mismatch(facts: OpFacts, function: Callable[..., Any], why: str) -> RegistrationError:
    names = ["op"]
    keyword_only = False
    for a in facts.arguments:
        if a.keyword_only and not keyword_only:
            names.append("*")
            keyword_only = True
        name = a.name + "_" if keyword.iskeyword(a.name) else a.name
        names.append(name + (f"={a.default!r}" if a.has_default else ""))
    return RegistrationError(
        f"the rule {getattr(function, '__name__', function)} at {place_of(function)} does not fit {facts.op}: {why}.\n"
        f"  schema: {schema_of(facts.op)}\n  write:  def {function.__name__}({', '.join(names)}):"
    )


def _adapted(
    function: Callable[..., Any], renamed: dict[str, str], defaults: dict[str, tuple[int, Any]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def adapted(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        bound = {renamed.get(name, name): value for name, value in kwargs.items()}
        for name, (index, default) in defaults.items():
            if index >= len(args):
                bound.setdefault(name, default)
        return function(op, *args, **bound)

    return adapted
