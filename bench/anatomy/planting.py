"""What every plan is made of: handlers that are put in for a while, the whole, and what freeing its results costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ...subclasses.core.schema import facts_of
from ..cases import tensors_in
from ..timing import Variant
from ..trials import Trial
from .freeing import Reserve
from .parts import CALL, DEALLOCATION, ENTERING, INNER, LEAVING, WHOLE, Part, Plan

NOTHING, ANSWERED, STAND_IN = "nothing", "handed back", "a stand-in"
FREE_OUTER, FREE_INNER, FREE_NONE = "free a result", "free inner results", "free nothing"
Freeing = tuple[tuple[str, ...], tuple[str, ...]]
OUTER: Freeing = ((FREE_OUTER,), (FREE_NONE,))
INNER_RESULT: Freeing = ((FREE_INNER,), (FREE_NONE,))
"""What freeing one costs: the times of the first without those of the second."""
DISPATCH, FUNCTION = "__torch_dispatch__", "__torch_function__"
Handler = Callable[..., Any]
Scope = Callable[[], Any]
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


@contextmanager
def planted(owner: Any, name: str, value: Any) -> Iterator[None]:
    """While inside, `owner.name` is `value`. What the owner inherits is not written to it afterwards."""
    own = vars(owner)
    before, had = own.get(name), name in own
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def stand_in(*_: Any) -> None:
    """Takes the place of what is not to run. It costs a call of Python, which is measured and taken off."""


def hand_back_nothing(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
    """The least that a handler does. Torch makes an undefined tensor of None, for views too, which could not be handed
    a prepared answer twice."""


def together(*scopes: Scope) -> Scope:
    """One scope of several; the first is entered first."""

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope())
            yield

    return entered


@dataclass(frozen=True)
class Site:
    """Where a plan is made: the trial, its arguments in their layer, the class that is asked, and, of a wrapper's
    class, the call as it arrives there."""

    trial: Trial
    args: tuple[Any, ...]
    owner: Any
    arrival: tuple[Any, ...] = ()

    @property
    def makes_view(self) -> bool:
        """Whether the op gives a view of its first operand."""
        results = facts_of(self.trial.case.overload).results
        return bool(results and results[0].view_of)

    def handled_by(self, handler: Handler) -> Scope:
        """The scope in which `handler` answers in the owner's place."""
        if issubclass(self.owner, Tensor):
            return together(lambda: planted(self.owner, DISPATCH, classmethod(handler)), self.trial.scope)
        name = DISPATCH if issubclass(self.owner, TorchDispatchMode) else FUNCTION
        # A class of its own: torch wraps a mode's handler when the class is made.
        mode: Scope = type(self.owner.__name__, (self.owner,), {name: handler})
        return mode

    def variant(self, name: str, *scopes: Scope) -> Variant:
        """The op, called as the trial calls it, in these scopes and the trial's."""
        return Variant(name, self.trial.case.function, self.args, together(*scopes, self.trial.scope))

    def variant_with(self, name: str, handler: Handler) -> Variant:
        """The op, answered by `handler`."""
        return Variant(name, self.trial.case.function, self.args, self.handled_by(handler))

    def result(self) -> object:
        """The op, once."""
        with self.trial.scope():
            return self.trial.case.function(*self.args)

    def answer(self) -> object:
        """What the handler hands back to torch, once."""
        if not self.arrival:
            return self.trial.case.function(*self.args)
        with self.trial.scope():
            answer: object = self.owner.__torch_dispatch__(*self.arrival)
            return answer

    def inner_calls(self) -> list[Call]:
        """What the handler calls for its answer."""
        if not self.arrival:
            return [(self.trial.case.function, self.args, {})]
        calls = _Calls()
        with self.trial.scope(), calls:
            self.owner.__torch_dispatch__(*self.arrival)
        return calls.made


class _Calls(TorchDispatchMode):
    """What is called while this is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def frame(site: Site) -> Plan:
    """What all plans have: the call, entering, the whole, and freeing; an op that writes makes nothing to free."""
    plain = next(iter(tensors_in(site.trial.case.make())))
    plan = Plan()
    plan.add(
        site.variant_with(NOTHING, hand_back_nothing),
        site.variant(WHOLE),
        Variant(STAND_IN, stand_in, (None, None, None)),
    )
    if issubclass(site.owner, TorchFunctionMode):  # stands before the dispatcher
        plan.parts = [Part(ENTERING, (NOTHING,))]
    else:
        plan.add(Variant(CALL, torch.is_same_size, (plain, plain)))
        plan.parts = [Part(CALL, (CALL,)), Part(ENTERING, (NOTHING,), (CALL,))]
    if not site.trial.case.in_place:
        calls = site.inner_calls()
        shared = site.result()
        plan.add(
            _freeing(site, FREE_OUTER, site.result),
            _freeing(site, FREE_INNER, lambda: replay(calls)),
            _freeing(site, FREE_NONE, lambda: shared),
        )
        plan.parts.append(Part(DEALLOCATION, *OUTER))
    _add_leaving(site, plan)
    return plan


def _add_leaving(site: Site, plan: Plan) -> None:
    """A handler that hands back what was prepared, over one that hands back nothing. A view can be handed back once."""
    answer = site.answer()
    results = facts_of(site.trial.case.overload).results
    if answer is None or (not results and issubclass(site.owner, TorchDispatchMode)):
        return  # the op hands back nothing
    if site.makes_view and issubclass(site.owner, TorchDispatchMode):
        plan.parts.append(Part(LEAVING, (WHOLE,), (INNER,)))  # no view that torch takes can be prepared
        return
    if site.makes_view and not issubclass(site.owner, TorchFunctionMode):
        reserve = Reserve(site.answer)
        handed = site.variant_with(ANSWERED, reserve.handler())
        plan.add(replace(handed, scope=together(reserve.scope, handed.scope)))
        plan.parts.append(Part(LEAVING, (ANSWERED, *OUTER[1]), (NOTHING, *OUTER[0])))
        return

    def hand_back(_cls: Any, _func: Any, _types: Any, _args: Any = (), _kwargs: Any = None) -> Any:
        return answer

    plan.add(site.variant_with(ANSWERED, hand_back))
    plan.parts.append(Part(LEAVING, (ANSWERED,), (NOTHING,)))


def replay(calls: list[Call]) -> object:
    """What these calls give: of one its result, of several a list."""
    made = [func(*args, **kwargs) for func, args, kwargs in calls]
    return made[0] if len(made) == 1 else made


def _freeing(site: Site, name: str, make: Callable[[], object]) -> Variant:
    """Made before the handler is put in that the filler enters."""
    reserve = Reserve(make)
    scope = together(reserve.scope, site.handled_by(hand_back_nothing))
    return Variant(name, reserve.function(site.trial.case.function), site.args, scope)
