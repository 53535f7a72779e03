"""The op table of a class: ``OpOverload -> Entry``, each entry computed once, on first use."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

from .errors import DeclarationError
from .fields import is_wrapper_class
from .private import OpOverload
from .schema import OpFacts, facts_of


class How(enum.Enum):
    """The step of the resolver that found an entry."""

    EXACT = "exact rule"
    KIND = "kind rule"
    DECOMPOSED = "decomposition"
    STRUCTURAL = "structural rule"
    FALLBACK = "fallback"
    MISSING = "missing"


class Entry:
    """How one class answers one overload.

    ``run(args, kwargs)`` computes the result, or returns NotImplemented where the answer has to come from another
    class. ``where`` is the file:line of the rule. ``hits`` counts the calls in this process (threads may lose a few).
    """

    __slots__ = ("cls", "facts", "hits", "how", "name", "op", "run", "where")

    def __init__(self, cls: type, facts: OpFacts, how: How, name: str, where: str, run: Callable[..., Any]) -> None:
        self.cls, self.op, self.facts, self.how = cls, facts.op, facts, how
        self.name, self.where, self.run, self.hits = name, where, run, 0

    def __str__(self) -> str:
        kinds = "+".join(k.value for k in self.facts.kinds) or "-"
        return f"{self.op!s:<32} {kinds:<20} {self.how.value:<16} {self.name:<28} {self.where}  hits={self.hits}"


class Table(dict[OpOverload, Entry]):
    """The entries that one class has computed so far. ``resolve(cls, facts, after)`` finds one: with the rules of all
    its ancestors, or of those that follow ``after`` in its MRO."""

    def __init__(self, cls: type, resolve: Callable[[type, OpFacts, type | None], Entry]) -> None:
        super().__init__()
        self.cls = cls
        self.resolve = resolve
        self._inherited: dict[tuple[type, OpOverload], Entry] = {}

    def __missing__(self, op: OpOverload) -> Entry:
        entry = self[op] = self.resolve(self.cls, facts_of(op), None)
        return entry

    def inherited(self, after: type, op: OpOverload) -> Entry:
        """The entry for ``op`` as if ``after``, and what stands before it in the MRO, had no rules."""
        if (after, op) not in self._inherited:
            self._inherited[after, op] = self.resolve(self.cls, facts_of(op), after)
        return self._inherited[after, op]

    def refresh(self) -> None:
        """Resolves all entries anew, after a registration. An entry that stays what it was keeps its hits."""
        self._inherited.clear()
        for op, old in list(self.items()):
            new = self.resolve(self.cls, old.facts, None)
            if (new.how, new.name, new.where) == (old.how, old.name, old.where):
                new.hits = old.hits
            self[op] = new


class OpTable:
    """What ``lamina.op_table(cls)`` returns: iterate the entries, index by overload, or print.

    Iterating gives what was resolved so far (each op that ran, and each rule's own); indexing resolves.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def __iter__(self) -> Iterator[Entry]:
        return iter(sorted(self._table.values(), key=lambda e: str(e.op)))

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, op: object) -> bool:
        return op in self._table

    def __getitem__(self, op: OpOverload) -> Entry:
        if not isinstance(op, OpOverload):
            raise KeyError(f"{op!r} is no operator overload: index by one, e.g. torch.ops.aten.mm.default")
        return self._table[op]

    def __str__(self) -> str:
        head = f"op table of {self._table.cls.__name__}: {len(self)} operators resolved"
        return "\n".join([head, *(f"  {entry}" for entry in self)])

    __repr__ = __str__


def op_table(cls: Any) -> OpTable:
    """The op table of ``cls``: print it, iterate its entries (op, kind, how it was resolved, file:line, hits), or index
    it by overload to resolve one. Each rule of the class and its parents is resolved; other ops when they first run."""
    if not (isinstance(cls, type) and is_wrapper_class(cls)):
        raise DeclarationError(
            getattr(cls, "__name__", repr(cls)), "it is no WrapperTensor subclass", "Pass such a class."
        )
    table: Table = cls._table  # type: ignore[attr-defined]
    for klass in cls.__mro__:
        for key in vars(klass).get("_rules", ()):
            if isinstance(key, OpOverload):
                table[key]
    return OpTable(table)
