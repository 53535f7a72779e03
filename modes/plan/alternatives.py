"""What would make a step fit that does not: each way with its own plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .ledger import CATEGORIES, GRADIENTS, PARAMETERS, STATE
from .plan import Plan
from .report import in_bytes, verdict
from .training import Training

Planned = Callable[[str, Training], Plan]
"""Plans a training, and shows under which name."""


@dataclass(frozen=True)
class Alternative:
    """One way, planned; or why it can't be gone."""

    name: str
    training: Training
    plan: Plan | None
    reason: str | None = None

    def __str__(self) -> str:
        if self.plan is None:
            return f"{self.name}: not planned: {self.reason}"
        reserved = self.plan.reserved_bytes
        taken = "" if reserved is None else f" ({in_bytes(reserved)} reserved)"
        return f"{self.name}: peak {in_bytes(self.plan.peak_bytes)}{taken}, {verdict(self.plan)}"


def alternatives(training: Training, plan: Plan, planned: Planned) -> Iterator[Alternative]:
    """Checkpointing, int8 weights, both, each as far as it is not there; then the largest batch that fits, as it is and
    with both. Nothing where the step fits, or where nothing says how much memory there is."""
    if plan.fits is not False:
        return
    best: tuple[Training, Plan] | None = None
    for changed in _changes(training):
        found = _tried(_named(changed), changed, planned)
        yield found
        if found.plan is not None and (best is None or found.plan.needed_bytes < best[1].needed_bytes):
            best = changed, found.plan
    yield from _smaller(training, plan, planned)
    if best is not None and not best[1].fits:
        yield from _smaller(*best, planned)


def devices_needed(plan: Plan) -> int | None:
    """How many of the device it takes at least, if parameters, gradients and optimizer state were split evenly and all
    else took nothing: arithmetic, not a plan. None without a device of the table."""
    if plan.hardware is None:
        return None
    lasting = sum(max(moment.nbytes[number] for moment in plan.moments) for number in _LASTING)
    return -(-lasting // plan.hardware.memory)


_LASTING = tuple(CATEGORIES.index(name) for name in (PARAMETERS, GRADIENTS, STATE))


def _changes(training: Training) -> Iterator[Training]:
    if not training.checkpointing:
        yield replace(training, checkpointing=True)
    if not training.int8:
        yield replace(training, int8=True)
    if not (training.checkpointing or training.int8):
        yield replace(training, checkpointing=True, int8=True)


def _named(training: Training) -> str:
    ways = ["checkpointing"] * training.checkpointing + ["int8 weights"] * training.int8
    return " and ".join(ways) or "as it is"


def _tried(name: str, training: Training, planned: Planned) -> Alternative:
    try:
        return Alternative(name, training, planned(name, training))
    except Exception as error:  # noqa: BLE001 - a model may have no blocks or linear layers, or not run so: that is told
        return Alternative(name, training, None, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _smaller(training: Training, plan: Plan, planned: Planned) -> Iterator[Alternative]:
    """The largest batch that fits. Memory grows about as a line in the batch: one sample is planned, and what the line
    through the two says, then less until it fits."""
    samples = training.batch[0]
    if samples == 1 or plan.hardware is None:
        return
    one = _of_size(1, training, planned)
    if one.plan is None or not one.plan.fits:
        yield one
        return
    by_sample = (plan.needed_bytes - one.plan.needed_bytes) / (samples - 1)
    size = min(samples - 1, 1 + int((plan.hardware.memory - one.plan.needed_bytes) / by_sample))
    while size > 1:
        found = _of_size(size, training, planned)
        if found.plan is None or found.plan.fits:
            yield found
            return
        size -= max(1, size // 20)
    yield one


def _of_size(size: int, training: Training, planned: Planned) -> Alternative:
    smaller = replace(training, batch=(size, *training.batch[1:]))
    shape = "x".join(map(str, smaller.batch))
    ways = "" if _named(training) == "as it is" else f"{_named(training)}, "
    return _tried(f"{ways}batch {shape}", smaller, planned)
