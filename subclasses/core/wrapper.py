"""``WrapperTensor``: declare the inner tensors, register rules, and have a tensor type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from . import convert, copying
from .boundary import dispatch
from .checks import check_fields
from .codec import Codec
from .compiling import Compilable
from .declaration import Declaration, Role, declare
from .errors import DeclarationError, RegistrationError
from .fields import tensors_in
from .function_table import FunctionBook, update_torch_function
from .geometry import OuterMetadata, carry_bits
from .memory import Memoryless, Unset
from .policy import Fallback, Gradients
from .printing import text_of
from .private import OpOverload, disabled_torch_function
from .resolver import resolve
from .rules import RuleBook, check_keys
from .schema import as_dispatched, facts_of
from .sharding import Shardable
from .structural import structural_rules
from .table import Table
from .template import Generated, generate

Self = TypeVar("Self", bound="WrapperTensor")
_OPTIONS = frozenset({"fallback", "precedence", "gradients"})


class WrapperTensor(Codec, Memoryless, Compilable, Shardable):
    """Base class of tensors that hold inner tensors and have no storage of their own.

    The body of a subclass declares its fields: ``torch.Tensor`` (or ``torch.Tensor | None``,
    ``tuple[torch.Tensor, ...]``) is an inner tensor, anything else is static context: immutable, hashable,
    compared by value.

    >>> class Celsius(WrapperTensor):
    ...     elem: torch.Tensor
    ...     fallback = Fallback.UNWRAP
    >>> Celsius(torch.tensor([20.0])) + 1
    Celsius(elem=tensor([21.]))

    Outer size, stride, dtype and device are those of the first inner tensor; ``outer_metadata`` says otherwise.

    Class attributes: ``fallback`` (what happens to an op without a rule), ``precedence`` (who goes first where several
    wrapper types meet; observers above representations), ``gradients`` (the type of a wrapped leaf's gradient).
    """

    fallback: ClassVar[Fallback] = Fallback.ERROR
    precedence: ClassVar[int] = 0
    gradients: ClassVar[Gradients] = Gradients.SAME

    _rules: ClassVar[RuleBook] = structural_rules("WrapperTensor")
    _function_rules: ClassVar[FunctionBook] = FunctionBook("WrapperTensor")
    _l_bits: ClassVar[bool] = False  # an instance whose outer tensor has a conj or neg bit says True
    _own_names: ClassVar[frozenset[str]]  # what the class and its ancestors define, up to this one
    _bits_from: ClassVar[str | None]
    _table: ClassVar[Table]
    _generated: ClassVar[Generated]
    declaration: ClassVar[Declaration]

    __torch_dispatch__ = classmethod(dispatch)  # type: ignore[assignment]
    __torch_function__ = disabled_torch_function

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _set_up(cls)

    def __new__(cls: type[Self], /, *args: Any, **kwargs: Any) -> Self:
        if cls is WrapperTensor:
            raise DeclarationError("WrapperTensor", "it declares no inner tensor", "Subclass it.")
        values = check_fields(cls, args, kwargs)
        self: Self = cls._generated.make(cls, *values)
        cls.carry_bits(self)
        return self

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        """Takes what ``__new__`` has used."""

    # what a class may override

    @classmethod
    def outer_metadata(cls, *fields: Any) -> OuterMetadata:
        """Size, stride, storage offset, dtype and device of the outer tensor, from the fields in declaration order."""
        names = [f.name for f in cls.declaration.fields]
        first = fields[names.index(cls.declaration.inner[0].name)]
        tensor = first[0] if isinstance(first, tuple) else first
        return OuterMetadata(tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)

    @classmethod
    def around(cls, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        """For observers: wraps ``run(args, kwargs)``, this class's answer to ``op``, once, when its entry is made."""
        return run

    @classmethod
    def carry_bits(cls, wrapper: WrapperTensor) -> None:
        """Gives ``wrapper`` the conj and neg bits of its first inner tensor, if its outer metadata are that one's."""
        if cls._bits_from is not None:
            carry_bits(wrapper, getattr(wrapper, cls._bits_from))

    # conversions

    def to_plain(self) -> torch.Tensor:
        """The values as a plain tensor (all levels of wrapping taken off), in memory of its own. Differentiable: the
        gradient that arrives here is of the class's choice (``gradients``)."""
        return convert.to_plain(self)  # type: ignore[no-any-return]

    @classmethod
    def from_plain(cls: type[Self], values: torch.Tensor, **context: Any) -> Self:
        """An instance that holds a copy of ``values``; context fields by name. Differentiable: ``values`` gets a plain
        gradient."""
        return convert.from_plain(cls, values, context)  # type: ignore[no-any-return]

    def saved_form(self) -> torch.Tensor:
        """What pickles and checkpoints hold in place of this tensor: itself. A class that can't outlive the process, or
        belongs to one kind of machine, says another one here."""
        return self

    # registration

    @classmethod
    def implements(cls, *keys: Any, override: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a rule for overloads, ``rule(op, *args, **kwargs)`` with the schema's names, or for kinds,
        ``rule(op, args, kwargs)``.

        Raises:
            RegistrationError: a key is no overload or kind, or the signature is not the schema's.
            RuleConflictError: this class has a rule for the key, and ``override`` is not set.
        """
        _refuse_base(cls)
        check_keys(keys)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            cls._rules.add(keys, function, override=override)
            for klass in _family(cls):
                klass._table.refresh()
            return function

        return register

    @classmethod
    def implements_function(
        cls, *keys: Any, override: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers ``rule(func, *args, **kwargs)`` for public functions, before autograd. Inside it the
        table is off, so that ``func(...)`` runs the ordinary path. Torch asks the outer type only: inside another
        wrapper these rules are not asked. Costs every op of the class
        5 us: ``__torch_function__`` is disabled while no function is registered."""
        _refuse_base(cls)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            cls._function_rules.add(keys, function, override=override)
            update_torch_function(cls)
            return function

        return register

    @classmethod
    def super_rule(cls, op: OpOverload) -> Callable[..., Any]:
        """The rule that ``cls`` inherits for ``op``, like ``super()``: found behind ``cls`` in the MRO of the instance
        that the call is about: ``cls.super_rule(op)(*args, **kwargs)``."""
        facts = facts_of(op)

        def inherited(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = as_dispatched(facts, args, kwargs)
            owner = next((type(t) for t in tensors_in((args, kwargs)) if isinstance(t, cls)), cls)
            return owner._table.inherited(cls, op).run(args, kwargs)

        return inherited

    # the flatten protocol

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        raise DeclarationError("WrapperTensor", "it declares no inner tensor", "Subclass it.")

    @classmethod
    def __tensor_unflatten__(
        cls: type[Self], inner: dict[str, torch.Tensor], context: Any, outer_size: Any, outer_stride: Any
    ) -> Self:
        raise DeclarationError("WrapperTensor", "it declares no inner tensor", "Subclass it.")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return text_of(self)

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        return copying.deepcopy(self, memo)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copying.reduce(self, protocol)


def _refuse_base(cls: type[WrapperTensor]) -> None:
    if cls is WrapperTensor:
        raise RegistrationError("a rule of WrapperTensor would change every wrapper type: register it with a subclass")


def _set_up(cls: type[WrapperTensor]) -> None:
    cls.declaration = declare(cls, WrapperTensor, _OPTIONS)
    cls._own_names = frozenset(_overridden(cls))
    _check_options(cls)
    cls._rules, cls._function_rules = RuleBook(cls.__name__), FunctionBook(cls.__name__)
    cls._table = Table(cls, resolve)
    says_metadata = "outer_metadata" in cls._own_names
    cls._generated = generate(cls.__name__, cls.declaration, says_metadata)
    first = cls.declaration.inner[0]
    cls._bits_from = None if says_metadata or first.role is Role.RUN else first.name
    cls.__tensor_unflatten__ = classmethod(cls._generated.unflatten)  # type: ignore[method-assign, assignment]
    cls.__tensor_flatten__ = cls._generated.flatten  # type: ignore[method-assign, assignment]
    for field in cls.declaration.fields:
        if field.role is Role.RUN:
            setattr(cls, field.name, _run_property(field.name))
        elif field.required and field.name not in vars(cls):
            setattr(cls, field.name, Unset(field.name))
    update_torch_function(cls)
    torch.serialization.add_safe_globals([cls, *copying.context_types(cls)])


def _check_options(cls: type[WrapperTensor]) -> None:
    for name, kind in (("fallback", Fallback), ("precedence", int), ("gradients", Gradients)):
        if not isinstance(getattr(cls, name), kind):
            raise DeclarationError(
                cls.__name__, f"{name} = {getattr(cls, name)!r} is no {kind.__name__}", f"Use a {kind.__name__}."
            )
    for name in ("outer_metadata", "encode"):
        if name in vars(cls) and not isinstance(vars(cls)[name], classmethod):
            raise DeclarationError(cls.__name__, f"{name} is no classmethod", "Put @classmethod before it.")
    if "store" in vars(cls):
        raise DeclarationError(cls.__name__, "it overrides store()", "Override stage(), of which store() is made.")
    if cls.fallback is Fallback.UNWRAP and cls.declaration.single is None:
        raise DeclarationError(
            cls.__name__,
            "fallback = UNWRAP runs ops on the inner tensor, and it has not exactly one",
            "Use Fallback.PLAIN with decode(), or rules for the kinds of op.",
        )


def _overridden(cls: type) -> set[str]:
    own: set[str] = set()
    for klass in cls.__mro__[: cls.__mro__.index(WrapperTensor)]:
        own |= set(vars(klass))
    return own


def _run_property(name: str) -> property:
    def read(self: Any) -> Sequence[torch.Tensor]:
        return tuple(vars(self)[f"{name}_{i}"] for i in range(vars(self)[f"{name}_count"]))

    return property(read, doc=f"The tensors of {name}, in order.")


def _family(cls: type[WrapperTensor]) -> Iterator[type[WrapperTensor]]:
    if cls is not WrapperTensor:
        yield cls
    for child in cls.__subclasses__():
        yield from _family(child)
