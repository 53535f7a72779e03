"""The plan of a class of lamina's that runs ops on its inner tensor: its own code, stand-ins in the place of a step.

The class's real dispatch, the real runner of its table's entry and the real functions generated for it are timed; what
comes after the step in question is replaced by a stand-in, whose cost is measured and taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ...subclasses.core import unwrap
from ...subclasses.core.geometry import carry_bits
from ...subclasses.core.policy import Fallback
from ...subclasses.core.private import share_storage
from ...subclasses.core.resolver import resolve
from ...subclasses.core.schema import facts_of
from ...subclasses.core.table import Entry, How
from ...subclasses.core.wrapper import WrapperTensor
from .floor import step
from .parts import ALIASING, INNER, LOOK_UP, OBSERVING, UNWRAP, WRAP, Part, Plan
from .planting import ANSWERED, NOTHING, STAND_IN, Scope, Site, frame, planted, replay, stand_in, together


def runs_on_inner(cls: Any, op: Any) -> bool:
    """Whether `cls` answers `op` by the fallback that unwraps."""
    if not issubclass(cls, WrapperTensor) or cls.fallback is not Fallback.UNWRAP:
        return False
    return bool(cls._table[op].how is How.FALLBACK)


def add_look_up(site: Site, plan: Plan) -> None:
    """The class's real dispatch, with an entry that does nothing; and what an observer puts around that."""
    cls, op = site.owner, site.arrival[0]
    empty = _empty_entry(cls, op)
    plan.add(site.variant(LOOK_UP, _in_table(cls, empty)))
    plan.parts.append(Part(LOOK_UP, (LOOK_UP,), (NOTHING, STAND_IN)))
    if "around" in cls._own_names:
        watched = _empty_entry(cls, op)
        watched.run = cls.around(op, stand_in)
        plan.add(site.variant(OBSERVING, _in_table(cls, watched)))
        plan.parts.append(Part(OBSERVING, (OBSERVING,), (LOOK_UP,)))


def plan_of(site: Site) -> Plan:
    """The steps of an unwrapping entry for one op, each measured over the step before."""
    plan = frame(site)
    add_look_up(site, plan)
    steps = _Steps(site)
    looked_up = OBSERVING if OBSERVING in plan.variants else LOOK_UP
    if steps.hands_back:
        _add_write(site, plan, steps, looked_up)
        return plan
    makes = not site.trial.case.in_place
    more = (STAND_IN,) if makes else ()  # this runner calls two of them, the entry before called one
    plan.add(site.variant(UNWRAP, steps.unwrapping()), site.variant(INNER, steps.computing()))
    plan.parts.append(Part(UNWRAP, (UNWRAP,), (looked_up, *more)))
    plan.parts.append(step(INNER, UNWRAP, makes=makes, plus=(STAND_IN,)))
    if makes:
        plan.add(site.variant(WRAP, steps.wrapping(share=False)))
        plan.parts.append(step(WRAP, INNER, makes=True))
    if site.makes_view:
        plan.add(site.variant(ALIASING, steps.wrapping(share=True)))
        plan.parts.append(step(ALIASING, WRAP, makes=True))
    return plan


def _add_write(site: Site, plan: Plan, steps: _Steps, looked_up: str) -> None:
    """An op that hands back its argument: so does every step, and that is no part of it."""
    plan.add(site.variant(UNWRAP, steps.unwrapping()), site.variant(INNER, steps.computing()))
    plan.parts += [
        Part(UNWRAP, (UNWRAP, NOTHING), (looked_up, ANSWERED)),
        Part(INNER, (INNER, STAND_IN), (UNWRAP,)),
    ]


def _empty_entry(cls: Any, op: Any) -> Entry:
    return Entry(cls, facts_of(op), How.FALLBACK, "a stand-in", "the bench", stand_in)


def _in_table(cls: Any, entry: Entry) -> Scope:
    @contextmanager
    def there() -> Iterator[None]:
        before = cls._table[entry.op]
        cls._table[entry.op] = entry
        try:
            yield
        finally:
            cls._table[entry.op] = before

    return there


class _Steps:
    """The scopes in which a class's entry for an op stops after one step more each."""

    def __init__(self, site: Site) -> None:
        self.cls, self.op, self.site = site.owner, site.arrival[0], site
        facts = facts_of(self.op)
        self.hands_back = bool(facts.results) and facts.results[0].same_as is not None

    def unwrapping(self) -> Scope:
        """Stand-ins for the inner op and the wrapping."""
        inner = replay(self.site.inner_calls())
        return self._scope(lambda *_, **__: inner, stand_in)

    def computing(self) -> Scope:
        """A stand-in for the wrapping alone."""
        return self._scope(None, stand_in)

    def wrapping(self, *, share: bool) -> Scope:
        """Nothing stands in but for the last step: the outer tensor is made, none is handed back."""
        make = self.cls._generated.rewrap

        def wrap(cls: Any, like: Any, inner: Any) -> None:
            make(cls, like, inner)

        def wrap_and_share(cls: Any, like: Any, inner: Any) -> None:
            share_storage(make(cls, like, inner), like)

        def wrap_and_carry(cls: Any, like: Any, inner: Any) -> None:
            carry_bits(make(cls, like, inner), inner)

        return self._scope(None, wrap_and_share if share else wrap_and_carry if self._carries() else wrap)

    def _carries(self) -> bool:
        """Whether this runner has the conj and neg bits carried over to what it made."""
        seen: list[Any] = []
        with self._scope(None, stand_in, lambda *given: seen.append(given))():
            self.site.trial.case.function(*self.site.args)
        return bool(seen)

    def _scope(self, call: Any, rewrap: Any, carry: Callable[..., None] = stand_in) -> Scope:
        entry = self._entry(call, rewrap)
        return together(
            _in_table(self.cls, entry),
            lambda: planted(unwrap, "share_storage", stand_in),
            lambda: planted(unwrap, "carry_bits", carry),
        )

    def _entry(self, call: Any, rewrap: Any) -> Entry:
        """What the resolver finds, with stand-ins where the runner looks for its parts."""
        with ExitStack() as stack:
            stack.enter_context(planted(self.cls, "_generated", self.cls._generated._replace(rewrap=rewrap)))
            if call is not None:
                stack.enter_context(planted(unwrap, "call_of", lambda _: call))
            return resolve(self.cls, facts_of(self.op))
