"""Runs the anatomy: chooses each subject's plan, measures all plans of an op in one run, and forms the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..cases import EAGER, LARGE_ADD, Case, tensors_in
from ..command import Command
from ..layers import Options, chosen_options, parser
from ..ours import LOGGING, TRANSPARENT
from ..peers import DISPATCH_MODE, FUNCTION_MODE, HAND_WRITTEN, TORCH_LOGGING, TWO_TENSOR, HandWritten
from ..progress import Progress, silent
from ..subjects import PLAIN, Subject
from ..timing import Measurement, Summary, Variant, describe_machine, measure_into
from ..trials import Gap, Trial, reason_of
from . import entries, floor, nested, outside
from .parts import PARTS, REST, SUM, WHOLE, Plan
from .planting import STAND_IN, Site, planted
from .plot import picture
from .report import LEGEND, explanations, tables
from .results import Anatomies, PartFigure, Unknown

SUBJECTS = (HAND_WRITTEN, TRANSPARENT, LOGGING, TWO_TENSOR, TORCH_LOGGING, DISPATCH_MODE, FUNCTION_MODE)


class SeveralCallsError(ValueError):
    """The op is no single call of the handler, so that its parts are not those of one."""


def cases(options: Options) -> list[Case]:
    """The operations; a large one, which is all inner op, only where it was asked for."""
    return [case for case in options.cases() if case.op != LARGE_ADD or LARGE_ADD in options.ops]


def work(options: Options) -> float:
    """How many seconds a run takes."""
    return options.seconds_each() * len(cases(options))


def run(options: Options, progress: Progress = silent, begun: Callable[[Anatomies], object] = id) -> Anatomies:
    """Measure the parts of each op's cost under one layer."""
    subjects, absences = options.subjects()
    shown = [each for each in subjects if each.asked_for or each.name in SUBJECTS]
    results = Anatomies(describe_machine(), options.settings, absences=absences)
    results.note(shown)
    begun(results)
    for case in cases(options):
        progress(case.op, options.seconds_each())
        add_case(results, case, shown)
    return results


def add_case(results: Anatomies, case: Case, subjects: Sequence[Subject]) -> None:
    """Measure all subjects' plans of one op together."""
    plans: dict[str, Plan] = {}
    for subject in subjects:
        trial = Trial(case, subject, 1, EAGER)
        gate = trial.prepare()
        found = gate if isinstance(gate, Gap) else _plan(trial)
        if isinstance(found, Gap):
            results.gaps.append(found)
        else:
            plans[subject.name] = found
    if not plans:
        return
    variants = [_within(name, each) for name, plan in plans.items() for each in plan.variants.values()]

    def add(measured: Measurement) -> None:
        for name, plan in plans.items():
            of_plan = {each: measured.rounds[f"{name} | {each}"] for each in plan.variants}
            results.figures += _figures(case.op, name, plan, of_plan)
            results.unmeasurable += [Unknown(case.op, name, each.part, each.reason) for each in plan.unmeasured]
            results.notes[f"{case.op} | {name}"] = plan.notes
            results.stand_in_ns.setdefault(case.op, Summary.of(of_plan[STAND_IN]))

    # Parts are differences, some of about nothing: how wide an interval is beside that says nothing.
    measure_into(add, variants, replace(results.settings, refuse_above=None))


def _within(subject: str, variant: Variant) -> Variant:
    return replace(variant, name=f"{subject} | {variant.name}")


def _figures(op: str, subject: str, plan: Plan, rounds: dict[str, list[float]]) -> Iterator[PartFigure]:
    """The parts in their order, their sum, the rest, and the whole."""
    parts = {part.name: part.rounds(rounds) for part in sorted(plan.parts, key=lambda part: [*PARTS].index(part.name))}
    sums = [sum(each) for each in zip(*parts.values(), strict=True)]
    rest = [whole - parts_of_it for whole, parts_of_it in zip(rounds[WHOLE], sums, strict=True)]
    for part, sample in {**parts, SUM: sums, REST: rest, WHOLE: rounds[WHOLE]}.items():
        yield PartFigure(f"{op} | {subject} | {part}", op, subject, part, Summary.of(sample), tuple(sample))


def _plan(trial: Trial) -> Plan | Gap:
    """The plan of a checked trial, each of its variants called once; or the reason why there is none."""
    try:
        plan = plan_of(trial)
        for variant in plan.variants.values():
            with variant.scope():
                variant.function(*variant.args)
    except Exception as error:  # noqa: BLE001  # whatever a foreign type raises is the reason that the report gives
        return trial.gap(reason_of(error))
    return plan


def plan_of(trial: Trial) -> Plan:
    """How the parts of a trial's cost are measured.

    Raises:
        SeveralCallsError: the op does not arrive as one call.
    """
    args = trial.arguments()
    owner = _owner(trial, args)
    if issubclass(owner, (TorchDispatchMode, TorchFunctionMode)):
        return nested.plan_of(Site(trial, args, owner))
    site = Site(trial, args, owner, _arrival(trial, args, owner))
    if owner is HandWritten:
        return floor.plan_of(site)
    if entries.runs_on_inner(owner, trial.case.overload):
        return entries.plan_of(site)
    return outside.plan_of(site)


def _owner(trial: Trial, args: tuple[Any, ...]) -> type:
    """The class whose handler is asked: a wrapper's, or a mode's."""
    wrapped = [type(tensor) for tensor in tensors_in(args) if type(tensor) is not Tensor]
    if wrapped or trial.subject is PLAIN:
        return wrapped[0]
    with trial.subject.scope() as mode:
        return type(mode)


def _arrival(trial: Trial, args: tuple[Any, ...], owner: Any) -> tuple[Any, ...]:
    """The one call of the owner's handler that the op makes: operator, types, arguments, keywords."""
    real, seen = owner.__torch_dispatch__, []

    def look(_cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append((func, types, args, kwargs or {}))
        return real(func, types, args, kwargs or {})

    with trial.scope(), planted(owner, "__torch_dispatch__", classmethod(look)):
        trial.case.function(*args)
    if len(seen) != 1 or seen[0][0] is not trial.case.overload:
        names = ", ".join(str(each[0]) for each in seen) or "no call"
        raise SeveralCallsError(f"{trial.case.op} arrives at the handler as {names}: the parts are those of one call")
    return tuple(seen[0])


COMMAND = Command(parser, chosen_options, work, run, LEGEND, tables, notes=explanations, picture=picture)
