"""Reads the body of a wrapper class into a ``Declaration``, and refuses what could only fail later."""

from __future__ import annotations

import enum
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from .errors import DeclarationError


class Role(enum.Enum):
    """What a field holds."""

    INNER = "inner"  # torch.Tensor
    OPTIONAL = "optional"  # torch.Tensor | None: its presence is part of the context
    RUN = "run"  # tuple[torch.Tensor, ...]: its length is part of the context
    CONTEXT = "context"  # anything else: static, hashable, compared by value


MISSING: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Field:
    name: str
    role: Role
    default: Any = MISSING

    @property
    def required(self) -> bool:
        return self.default is MISSING


@dataclass(frozen=True)
class Declaration:
    """The fields of a wrapper class in the order of its constructor. Compared by value."""

    fields: tuple[Field, ...]

    def of(self, *roles: Role) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.role in roles)

    @cached_property
    def inner(self) -> tuple[Field, ...]:
        """All fields that hold tensors."""
        return self.of(Role.INNER, Role.OPTIONAL, Role.RUN)

    @cached_property
    def context(self) -> tuple[Field, ...]:
        return self.of(Role.CONTEXT)

    @cached_property
    def single(self) -> Field | None:
        """The inner field, where there is exactly one and it is always there. Every gradient of a parameter asks."""
        return self.inner[0] if len(self.inner) == 1 and self.inner[0].role is Role.INNER else None


def declare(cls: type, base: type, options: frozenset[str]) -> Declaration:
    """The declaration of ``cls``: its parents' fields first, then those of its own body.

    ``base`` is the class that ends the search; ``options`` are the names that configure a class and are no fields.
    """
    parents: list[Any] = [c for c in cls.__mro__[1:] if c is not base and isinstance(c, type) and issubclass(c, base)]
    _refuse_ambiguous_bases(cls, parents)
    fields = {f.name: f for c in reversed(parents) for f in c.declaration.fields}
    _refuse_slots(cls)
    _refuse_own_protocols(cls)
    _refuse_bare_values(cls, options)
    _refuse_hidden_fields(cls, fields)
    for field in _own_fields(cls, options):
        _refuse_collision(cls, base, field, fields.get(field.name))
        fields[field.name] = field
    declaration = Declaration(tuple(fields.values()))
    _refuse_required_after_default(cls, declaration)
    _refuse_no_inner(cls, base, declaration)
    _refuse_run_names(cls, declaration)
    return declaration


def _own_fields(cls: type, options: frozenset[str]) -> Iterator[Field]:
    for name, annotation in inspect.get_annotations(cls).items():
        role = _role(cls, name, annotation)
        if role is None or name in options:
            continue
        default = cls.__dict__.get(name, MISSING)
        if default is MISSING and role is Role.OPTIONAL:
            default = None
        _refuse_bad_default(cls, name, role, default)
        yield Field(name, role, default)


def _role(cls: type, name: str, annotation: Any) -> Role | None:
    """None for a ClassVar."""
    if isinstance(annotation, str):
        annotation = evaluate(cls, name, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is ClassVar or origin is ClassVar:
        return None
    if _is_tensor(annotation):
        return Role.INNER
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return Role.OPTIONAL if any(_is_tensor(a) for a in arguments) else _context(cls, name, annotation)
    if origin is tuple and len(arguments) == 2 and _is_tensor(arguments[0]) and arguments[1] is Ellipsis:
        return Role.RUN
    return _context(cls, name, annotation)


def _context(cls: type, name: str, annotation: Any) -> Role:
    if _mentions_tensor(annotation):
        raise DeclarationError(
            cls.__name__,
            f"the annotation of {name!r} mixes a tensor with what flattening does not know: {annotation}",
            f"Write `{name}: torch.Tensor`, `torch.Tensor | None` or `tuple[torch.Tensor, ...]`.",
        )
    if annotation in (list, dict, set) or typing.get_origin(annotation) in (list, dict, set):
        raise DeclarationError(
            cls.__name__,
            f"the context {name!r} is a {annotation}, which can't be hashed",
            "Context guards compilation: use a tuple, a frozenset or a frozen dataclass.",
        )
    return Role.CONTEXT


def evaluate(cls: type, name: str, text: str) -> Any:
    """The object behind a string annotation (``from __future__ import annotations``)."""
    module = vars(sys.modules.get(cls.__module__, types.ModuleType("")))
    try:
        return eval(text, dict(module), dict(vars(cls)))  # noqa: S307 - the class author's own annotation
    except Exception as error:
        if "Tensor" in text or not isinstance(error, NameError):
            raise DeclarationError(
                cls.__name__,
                f"the annotation of {name!r} can't be evaluated: {text!r} ({error})",
                "Import its names at module level, so that inner tensors can be told from context.",
            ) from error
        return object  # names that are local to a function: certainly no tensor, so context


def _is_tensor(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, torch.Tensor)


def _mentions_tensor(annotation: Any) -> bool:
    return _is_tensor(annotation) or any(_mentions_tensor(a) for a in typing.get_args(annotation))


def _refuse_ambiguous_bases(cls: type, parents: list[Any]) -> None:
    direct: list[Any] = [b for b in cls.__bases__ if b in parents]
    for first in direct:
        for second in direct[direct.index(first) + 1 :]:
            ours, theirs = (c.declaration for c in (first, second))
            shorter = min(len(ours.fields), len(theirs.fields))
            if ours.fields[:shorter] != theirs.fields[:shorter]:
                raise DeclarationError(
                    cls.__name__,
                    f"its bases {first.__name__} and {second.__name__} declare different fields, or in another order",
                    "Inherit from one of them, and hold the other's tensors in fields of your own.",
                )


def _refuse_slots(cls: type) -> None:
    if cls.__dict__.get("__slots__"):
        raise DeclarationError(
            cls.__name__, "it has __slots__", "Leave them out: a wrapper in slots can't be swapped for a Parameter."
        )


_OWN_PROTOCOLS = {
    "__torch_dispatch__": "Register rules with implements()",
    "__torch_function__": "Register rules with implements_function()",
    "__tensor_flatten__": "Declare the inner tensors and the context as fields",
    "__tensor_unflatten__": "Declare the inner tensors and the context as fields",
}


def _refuse_own_protocols(cls: type) -> None:
    for name, advice in _OWN_PROTOCOLS.items():
        if name in vars(cls):
            raise DeclarationError(cls.__name__, f"it defines {name}, which the base class derives", f"{advice}.")


def _refuse_hidden_fields(cls: type, fields: dict[str, Field]) -> None:
    for name in fields.keys() & cls.__dict__.keys() - inspect.get_annotations(cls).keys():
        raise DeclarationError(
            cls.__name__, f"{name!r} hides the inherited field of that name", "Rename the method or property."
        )


def _refuse_no_inner(cls: type, base: type, declaration: Declaration) -> None:
    if not declaration.inner:
        raise DeclarationError(
            cls.__name__, "it declares no inner tensor", "Write one in the class body, e.g. `elem: torch.Tensor`."
        )
    says_metadata = any("outer_metadata" in vars(c) for c in cls.__mro__[: cls.__mro__.index(base)])
    if declaration.inner[0].role is Role.OPTIONAL and not says_metadata:
        raise DeclarationError(
            cls.__name__,
            f"its first inner tensor {declaration.inner[0].name!r} may be absent, and the outer metadata come from it",
            "Declare one that is always there before it, or override outer_metadata.",
        )


def _refuse_bare_values(cls: type, options: frozenset[str]) -> None:
    annotated = inspect.get_annotations(cls)
    for name, value in cls.__dict__.items():
        if name.startswith("__") or name in annotated or name in options:
            continue
        if callable(value) or hasattr(value, "__get__"):
            continue
        raise DeclarationError(
            cls.__name__,
            f"{name} = {value!r} has no annotation",
            f"Write `{name}: {type(value).__name__} = ...` for a field, `{name}: ClassVar[...]` for a class attribute.",
        )


def _refuse_collision(cls: type, base: type, field: Field, inherited: Field | None) -> None:
    name = field.name
    if inherited is not None:
        if inherited.role is not field.role:
            raise DeclarationError(
                cls.__name__,
                f"{name!r} is {field.role.value} here and {inherited.role.value} in a parent",
                "Keep its role, or choose another name.",
            )
        return
    if hasattr(base, name) or name in inspect.get_annotations(base):
        raise DeclarationError(
            cls.__name__,
            f"the field name {name!r} hides an attribute of torch.Tensor",
            f"Choose another one, e.g. `q{name.strip('_')}` or `{name.strip('_')}_`.",
        )
    if name.startswith(("__", "_l_")):
        raise DeclarationError(cls.__name__, f"{name!r} is reserved", "Let the name not begin with __ or _l_.")


def _refuse_bad_default(cls: type, name: str, role: Role, default: Any) -> None:
    if default is MISSING:
        return
    if role is Role.CONTEXT and isinstance(default, torch.Tensor):
        raise DeclarationError(
            cls.__name__, f"the default of {name!r} is a tensor", f"Declare an inner tensor: `{name}: torch.Tensor`."
        )
    if role is not Role.CONTEXT:
        if role is Role.OPTIONAL and default is None:
            return
        raise DeclarationError(
            cls.__name__,
            f"the inner tensor {name!r} has a default",
            "Inner tensors are always given; write `torch.Tensor | None` for one that may be absent.",
        )
    try:
        hash(default)
    except TypeError as error:
        raise DeclarationError(
            cls.__name__,
            f"the default of {name!r}, a {type(default).__name__}, can't be hashed",
            "Context guards compilation: use a frozen dataclass, a tuple, an enum, a number or a string.",
        ) from error


def _refuse_run_names(cls: type, declaration: Declaration) -> None:
    """A run `p` is kept in attributes p_0, p_1, ... and p_count."""
    for run in declaration.of(Role.RUN):
        for field in declaration.fields:
            rest = field.name.removeprefix(f"{run.name}_")
            if rest != field.name and (rest == "count" or rest.isdecimal()):
                raise DeclarationError(
                    cls.__name__, f"{field.name!r} is taken by the run {run.name!r}", "Choose another name."
                )


def _refuse_required_after_default(cls: type, declaration: Declaration) -> None:
    optional: str | None = None
    for field in declaration.fields:
        if not field.required:
            optional = optional or field.name
        elif optional is not None:
            raise DeclarationError(
                cls.__name__,
                f"{field.name!r} has no default and follows {optional!r}, which has one",
                f"Give {field.name!r} a default, or declare it earlier.",
            )
