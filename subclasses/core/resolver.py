"""Finds the entry for (class, overload), like the dispatcher's ``OperatorEntry`` computes its table."""

from __future__ import annotations

from typing import Any

from .boundary import by_rule
from .errors import FallbackError
from .plain import decoding
from .policy import Fallback, is_strict
from .private import composite_kernel
from .rules import Rule, RuleBook
from .schema import OpFacts
from .table import Entry, How
from .unwrap import Runner, counting_versions, unwrapping


def resolve(cls: Any, facts: OpFacts, after: type | None = None) -> Entry:
    """The entry of ``cls`` for an overload. The first that holds:

    1. a rule for this exact overload, nearest class in the MRO first
    2. decomposition, where the op is CompositeImplicitAutograd and has no kernel of its own. It arrives whole under
       ``inference_mode`` only; elsewhere its pieces do, and rules for kinds are to see the same everywhere
    3. a rule for a kind of op, likewise; the kinds of one op in the order of ``Kind``
    4. the class's fallback policy. Before PLAIN and ERROR stand the structural rules of ``WrapperTensor`` (``detach``,
       ``clone``, ``copy_`` ...), which work on every inner tensor; UNWRAP needs none
    5. nothing: an entry that declines, and raises ``MissingRuleError`` where no other class answers

    With ``after`` only the classes that follow it in the MRO count, as for ``super()``.
    """
    entry = _resolve(cls, cls.__mro__ if after is None else cls.__mro__[cls.__mro__.index(after) + 1 :], facts)
    if after is None:
        entry.run = cls.around(facts.op, counting_versions(facts, entry.run))
    return entry


def _resolve(cls: Any, lineage: tuple[type, ...], facts: OpFacts) -> Entry:
    books = [c.__dict__["_rules"] for c in lineage if "_rules" in c.__dict__]
    authored = books[:-1]  # the last book is that of WrapperTensor
    return (
        _from_books(cls, facts, authored, (facts.op,), How.EXACT)
        or _decomposed(cls, facts)
        or _from_books(cls, facts, authored, facts.kinds, How.KIND)
        or _fallback(cls, facts, books[-1:])
    )


def _from_books(cls: Any, facts: OpFacts, books: list[RuleBook], keys: tuple[Any, ...], how: How) -> Entry | None:
    for book in books:
        for key in keys:
            rule: Rule | None = book.get(key)
            if rule is not None:
                return Entry(cls, facts, how, rule.name, rule.where, by_rule(cls, facts, rule))
    return None


def _decomposed(cls: Any, facts: OpFacts) -> Entry | None:
    if not facts.composite:
        return None
    kernel = composite_kernel(facts.op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return kernel(*args, **kwargs)

    return Entry(cls, facts, How.DECOMPOSED, "composite kernel", "torch", run)


def _fallback(cls: Any, facts: OpFacts, structural: list[RuleBook]) -> Entry:
    if cls.fallback is Fallback.UNWRAP:
        return Entry(cls, facts, How.FALLBACK, "UNWRAP", "class attribute", unwrapping(cls, facts))
    entry = _from_books(cls, facts, structural, (facts.op,), How.STRUCTURAL)
    if entry is not None:
        return entry
    if cls.fallback is Fallback.PLAIN:
        run = _unless_strict(cls, facts, decoding(cls, facts))
        return Entry(cls, facts, How.FALLBACK, "PLAIN", "class attribute", run)
    return Entry(cls, facts, How.MISSING, "-", "-", lambda args, kwargs: NotImplemented)


def _unless_strict(cls: Any, facts: OpFacts, run: Runner) -> Runner:
    def unless_strict(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_strict():
            raise FallbackError(facts.op, cls, "PLAIN")
        return run(args, kwargs)

    return unless_strict
