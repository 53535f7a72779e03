"""The demo: one small model trained in each kind of wrapping, eager and compiled, all in turns, and what that costs."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from .compiler import empty_cache, missing_compiler
from .demo_cost import OPS, measure_layers
from .demo_files import DemoError, folder_for, write_both
from .demo_results import DemoResults, Outcome
from .demo_task import Batch, Digits, load
from .demo_trainee import PLAIN, WRAPPINGS, Trainee, Wrapping
from .progress import Progress, progress_bar
from .results import Results
from .timing import Settings, Summary, describe_machine, paired_ratio, quiet_machine

__all__ = ["DemoError", "Plan", "run", "train"]

# The optimizer is compiled twice: before it has momenta, and after.
COMPILING_STEPS = 2

# Short loops, and the thread's own clock: a busy machine interrupts few of them, and lengthens none.
# The demo always shows its figures, each with its interval.
LAYER_SETTINGS = Settings(rounds=100, loop_ns=400_000, clock=time.thread_time_ns, refuse_above=None)


@dataclass(frozen=True)
class Plan:
    """How much to do. The first epoch's steps are left out of the times: they compile and warm up."""

    seed: int = 0
    epochs: int = 20
    not_compiled: str | None = None
    wrappings: Sequence[Wrapping] = WRAPPINGS
    settings: Settings = LAYER_SETTINGS

    @classmethod
    def of(cls, *, quick: bool, seed: int) -> Plan:
        """The plan of the command line."""
        if not 0 <= seed < 2**32:
            raise DemoError(f"--seed has to be in 0 to 2**32 - 1, got {seed}")
        if quick:
            return cls(
                seed, epochs=8, not_compiled="--quick leaves it out.", settings=replace(LAYER_SETTINGS, rounds=50)
            )
        return cls(seed, not_compiled=missing_compiler())

    def trainees(self) -> list[Trainee]:
        """All models, eager ones first."""
        modes = [False] if self.not_compiled else [False, True]
        return [Trainee(each, compiled=compiled, seed=self.seed) for compiled in modes for each in self.wrappings]

    def work(self, digits: Digits) -> int:
        """By how much the progress advances in the whole."""
        models = len(self.wrappings) * (1 if self.not_compiled else 2)
        return models * self.epochs * digits.batches_per_epoch + len(OPS)


def run(*, quick: bool, json: bool, out: Path, seed: int) -> None:
    """Train, print the table (or JSON), write `lamina-demo.json` and `lamina-demo.png` into `out`.

    Raises:
        DemoError: the folder cannot be written to, the seed is out of range, or an eager transparent layer changed a
            number (after all was printed and written).
    """
    from .demo_report import as_json, print_results

    folder = folder_for(out)
    plan = Plan.of(quick=quick, seed=seed)
    digits = load(seed)
    with progress_bar(plan.work(digits), hidden=json and not sys.stdout.isatty()) as progress:
        results = train(plan, digits, progress)
    paths = write_both(results, folder)
    if json:
        print(as_json(results))
    else:
        print_results(results, paths)
    broken = [f"{each.wrapping}: {each.difference}" for each in results.outcomes if each.broke_its_promise]
    if broken:
        raise DemoError(f"a transparent layer changed a number. {'; '.join(broken)}")


def train(plan: Plan, digits: Digits, progress: Progress) -> DemoResults:
    """Train all models of the plan, step by step in turns, then look at each and at single operators."""
    with ExitStack() as scopes:
        scopes.enter_context(quiet_machine())
        if not plan.not_compiled:
            scopes.enter_context(empty_cache())
        trainees = plan.trainees()
        batches = list(digits.batches(plan.epochs, plan.seed))
        _train_in_turns(trainees, batches, random.Random(plan.seed), progress)
        outcomes = _outcomes(trainees, digits, batches[0])
    cost = measure_layers(plan.settings, progress)
    return _results(plan, digits, outcomes, cost)


def _train_in_turns(
    trainees: Sequence[Trainee], batches: Sequence[Batch], order: random.Random, progress: Progress
) -> None:
    """In each round every model takes the same step, in a new random order: what the machine does meets all.

    Only the rounds that compile go by the list: those that come later find what is equal in the cache.
    """
    for number, batch in enumerate(batches):
        compiling = number < COMPILING_STEPS
        for trainee in trainees if compiling else order.sample(trainees, len(trainees)):
            doing = "compiling" if compiling and trainee.compiled else "training"
            progress(f"{doing}: {trainee.wrapping.name}, {trainee.mode}", 0)
            trainee.step(batch)
            progress(doing, 1)


def _outcomes(trainees: Sequence[Trainee], digits: Digits, batch: Batch) -> tuple[Outcome, ...]:
    by_name = {(trainee.wrapping.name, trainee.compiled): trainee for trainee in trainees}
    outcomes = []
    for trainee in trainees:
        reference = by_name.get((trainee.wrapping.same_as or "", trainee.compiled))
        plain = by_name[PLAIN, trainee.compiled]
        outcomes.append(_outcome(trainee, plain, reference, digits))
    # A further step changes the weights: only when all were compared.
    counts = [trainee.count_ops(batch) for trainee in trainees]
    return tuple(outcome.with_ops(ops) for outcome, ops in zip(outcomes, counts, strict=True))


def _outcome(trainee: Trainee, plain: Trainee, reference: Trainee | None, digits: Digits) -> Outcome:
    warm = digits.batches_per_epoch
    return Outcome(
        wrapping=trainee.wrapping.name,
        mode=trainee.mode,
        accuracy=trainee.accuracy(digits),
        loss=trainee.losses[-1],
        weight_bytes=trainee.weight_bytes(),
        step_ns=Summary.of(trainee.steps_ns[warm:]),
        ratio_to_plain=paired_ratio(trainee.steps_ns[warm:], plain.steps_ns[warm:]),
        ops={},
        compile_s=trainee.compile_ns / 1e9,
        compilations=trainee.compilations,
        same_as=reference.wrapping.name if reference else None,
        difference=trainee.difference(reference) if reference else None,
    )


def _results(plan: Plan, digits: Digits, outcomes: tuple[Outcome, ...], cost: Results) -> DemoResults:
    return DemoResults(
        machine=describe_machine(),
        seed=plan.seed,
        epochs=plan.epochs,
        steps=plan.epochs * digits.batches_per_epoch,
        train_images=len(digits.train_labels),
        test_images=len(digits.test_labels),
        outcomes=outcomes,
        not_compiled=plan.not_compiled,
        layer_cost=cost,
    )
