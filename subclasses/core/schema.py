"""What the schema of an operator says, computed once per overload: which arguments are tensors, which are written,
what each result is (new, a view of an argument, or an argument itself), and of which kinds the operator is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from .private import OpOverload, has_kernel, schema_of


class Kind(enum.Enum):
    """Kinds of operators, from the schema and its tags. An operator may be of several; the resolver asks them in this
    order, as the dispatcher asks alias keys."""

    LIST_MUTATING = "list-mutating"  # writes to lists of tensors: _foreach_add_, _fused_adam_
    OUT = "out"  # writes to keyword-only arguments and returns them
    INPLACE = "in-place"  # writes to an argument and returns it (or nothing)
    VIEW = "view"  # the result shares the memory of an argument
    FACTORY = "factory-like"  # new_zeros, zeros_like: a tensor argument gives the metadata only
    COLLECTIVE = "collective"
    POINTWISE = "pointwise"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a schema.

    ``index`` is its place among all arguments, keyword-only ones included. ``tensor``: takes a tensor, or tensors in a
    list (``listed``). ``written``: the op writes to it. ``aliased``: the schema's names for its memory, the ``a`` of
    ``Tensor(a!)``; a result with one of them shares it. ``default`` is None where there is none.
    """

    name: str
    index: int
    keyword_only: bool
    tensor: bool
    listed: bool
    written: bool
    aliased: frozenset[str]
    has_default: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Result:
    """One result: ``same_as`` the argument that it returns, or ``view_of`` the one whose memory it shares."""

    tensor: bool
    listed: bool
    optional: bool
    same_as: Argument | None
    view_of: Argument | None


# Written without the schema saying so: https://github.com/pytorch/pytorch/issues/50886
_HIDDEN_WRITES = dict.fromkeys(
    ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"), ("running_mean", "running_var")
)
_COLLECTIVE_NAMESPACES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd")
# Backends whose own kernel makes a composite one a mere default.
_BACKEND_KEYS = ("CPU", "CUDA", "Meta", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


class OpFacts:
    """The facts of one overload. Get it from ``facts_of``."""

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        schema = schema_of(op)
        hidden = _HIDDEN_WRITES.get(schema.name, ())
        self.arguments = tuple(_argument(i, a, a.name in hidden) for i, a in enumerate(schema.arguments))
        self.results = tuple(_result(r, self.arguments) for r in schema.returns)
        self.written = tuple(a for a in self.arguments if a.written)
        self.tensors = tuple(a for a in self.arguments if a.tensor)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        tests = {
            Kind.LIST_MUTATING: any(a.listed for a in self.written),
            Kind.OUT: any(a.keyword_only for a in self.written),
            Kind.INPLACE: any(not a.keyword_only and not a.listed for a in self.written),
            Kind.VIEW: any(r.view_of for r in self.results),
            Kind.FACTORY: self._is_factory(),
            Kind.COLLECTIVE: self.op.namespace in _COLLECTIVE_NAMESPACES,
            Kind.POINTWISE: torch.Tag.pointwise in self.op.tags,
        }
        return tuple(kind for kind, holds in tests.items() if holds)

    @cached_property
    def composite(self) -> bool:
        """CompositeImplicitAutograd and no kernel of its own: it arrives whole under inference mode only."""
        return has_kernel(self.op, "CompositeImplicitAutograd") and not any(
            has_kernel(self.op, k) for k in _BACKEND_KEYS
        )

    @cached_property
    def changes_geometry(self) -> bool:
        """Writes may leave a written argument with another shape or stride: ``t_``, ``resize_``, ``out=``, and some
        that resize on the quiet (``addbmm_``). Element-wise in-place ops can't."""
        return bool(self.written) and not self.elementwise_write

    @cached_property
    def elementwise_write(self) -> bool:
        """Writes element by element to arguments that have their shape already: ``add_``, ``_foreach_add_``."""
        listwise = self.op.overloadpacket.__name__.startswith(("_foreach_", "_fused_"))
        return Kind.OUT not in self.kinds and (listwise or Kind.POINTWISE in self.kinds)

    @cached_property
    def keeps_math_bits(self) -> bool:
        """An element-wise kernel or a view conjugates nothing on the way: it needs no active Conjugate key."""
        elementwise = Kind.POINTWISE in self.kinds and has_kernel(self.op, "CPU")
        return Kind.VIEW in self.kinds or elementwise or self.op.overloadpacket.__name__.startswith("_foreach_")

    @cached_property
    def toggles_bits(self) -> bool:
        """A view whose conj and neg bits may differ from those of its base."""
        name = self.op.overloadpacket.__name__
        return name in ("_conj", "_neg_view", "view_as_real", "view_as_complex") or str(self.op) == "aten.view.dtype"

    @cached_property
    def chooses_layout(self) -> bool:
        """The result may have another layout than the arguments."""
        name = schema_of(self.op).name
        return any(a.name == "layout" for a in self.arguments) or any(w in name for w in ("sparse", "mkldnn", "nested"))

    @cached_property
    def flat_write(self) -> bool:
        """Writes its first argument, returns it, and has no list of tensors in it: ``add_``."""
        return (
            self.written == self.arguments[:1]
            and not any(a.listed for a in self.tensors)
            and not self.changes_geometry
            and len(self.results) == 1
            and self.results[0].same_as is self.arguments[0]
        )

    @cached_property
    def flat(self) -> bool:
        """No list of tensors in it, nothing written, one new tensor out: the shape of the fast path."""
        return (
            not any(a.listed for a in self.tensors)
            and not self.written
            and len(self.results) == 1
            and self.results[0].tensor
            and not self.results[0].listed
        )

    def _is_factory(self) -> bool:
        name = schema_of(self.op).name.partition("::")[2]
        return bool(self.tensors) and (name.startswith("new_") or name.endswith("_like"))


@cache
def facts_of(op: OpOverload) -> OpFacts:
    return OpFacts(op)


def value_of(argument: Argument, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value that a call gives to ``argument``: by position, by keyword, or the schema's default."""
    if not argument.keyword_only and argument.index < len(args):
        return args[argument.index]
    return kwargs.get(argument.name, argument.default)


def as_dispatched(
    facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call written by hand in the form in which dispatch passes it: by position whatever is not keyword-only."""
    rest = dict(kwargs)
    values = list(args)
    for argument in facts.arguments[len(args) :]:
        if argument.keyword_only or not (
            rest.keys() & {a.name for a in facts.arguments[len(values) :] if not a.keyword_only}
        ):
            break
        values.append(rest.pop(argument.name, argument.default))
    return tuple(values), rest


def _argument(index: int, argument: Any, hidden_write: bool) -> Argument:
    text = str(argument.type)
    alias = argument.alias_info
    return Argument(
        name=argument.name,
        index=index,
        keyword_only=argument.kwarg_only,
        tensor="Tensor" in text,
        listed="List[" in text and "Tensor" in text,
        written=hidden_write or (alias is not None and alias.is_write),
        aliased=frozenset(alias.before_set) if alias is not None else frozenset(),
        has_default=argument.has_default_value(),
        default=argument.default_value if argument.has_default_value() else None,
    )


def _result(result: Any, arguments: tuple[Argument, ...]) -> Result:
    text = str(result.type)
    listed = "List[" in text and "Tensor" in text
    same_as = view_of = None
    if result.alias_info is not None:
        source = _source(result, arguments, listed)
        if result.alias_info.is_write:
            same_as = source
        else:
            view_of = source
    return Result(
        tensor="Tensor" in text, listed=listed, optional=text.startswith("Optional"), same_as=same_as, view_of=view_of
    )


def _source(result: Any, arguments: tuple[Argument, ...], listed: bool) -> Argument | None:
    if listed:  # Tensor(a)[]: the schema object hides the name; every such op has one aliased argument
        return next((a for a in arguments if a.aliased), None)
    names = set(result.alias_info.before_set)
    return next((a for a in arguments if a.aliased & names), None)
