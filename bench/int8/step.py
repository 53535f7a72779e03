"""The training step: an MLP 1024-2048-1024, a batch of 128, SGD; in fp32, and with int8 weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lamina

from ..cases import random_tensors
from ..compiler import COMPILED, EAGER, CountingInductor
from ..progress import Progress
from ..timing import Measurement, Variant, measure_into
from ..training import TrainingStep
from ..trials import Gap, WrongResultError, kind_of, reason_of
from .options import Options
from .results import Results, StepFigure
from .subjects import ours, weight_bytes

OP = "training step"
FP32, INT16 = "fp32", ours("int16")
STOCHASTIC = f"{INT16} stochastic"
CHECKED_STEPS = 5
SECONDS_EACH, SECONDS_TO_TIME = {EAGER: 1.0, COMPILED: 5.0}, 8.0
# Of a mean over many outputs, whose gradients are small: one step changes the int8 payload of the weights.
LEARNING_RATE = 1.0


@dataclass(frozen=True)
class Sizes:
    """How large model and batch are."""

    width: int = 1024
    hidden: int = 2048
    batch: int = 128

    def model(self) -> nn.Module:
        """The same model at every call; torch's global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(self.width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.width))


FULL_SIZES = Sizes()


def _quantize(rounding: str) -> Callable[[Tensor], Tensor]:
    return lambda values: lamina.ScaledInt8Tensor.quantize(values, rounding=rounding, activation="int16")


WRAPPINGS: dict[str, Callable[[Tensor], Tensor] | None] = {
    FP32: None,
    INT16: _quantize("nearest"),
    STOCHASTIC: _quantize("stochastic"),
}


class StepTrial:
    """One model in training, eager or compiled."""

    def __init__(self, subject: str, mode: str, sizes: Sizes) -> None:
        self.subject, self.mode = subject, mode
        self.batch = tuple(random_tensors((sizes.batch, sizes.width), (sizes.batch, sizes.width)))
        self.model = sizes.model()
        self.losses: tuple[float, ...] = ()
        if (wrap := WRAPPINGS[subject]) is not None:
            lamina.wrap_parameters(self.model, wrap, where=lambda name, *_: name.endswith("weight"))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        backend = CountingInductor() if mode == COMPILED else None
        self.step = TrainingStep(self.model, optimizer, F.mse_loss, backend)

    @property
    def variant(self) -> Variant:
        """What is timed."""
        return Variant(f"{self.subject} | {self.mode}", self.step, self.batch)

    @property
    def base(self) -> str:
        """The name of the variant that this one is compared with."""
        return f"{FP32} | {self.mode}"

    def check(self) -> None:
        """Raise WrongResultError unless some steps make the loss fall, which shows that the weights are written."""
        self.losses = tuple(self.step(*self.batch).item() for _ in range(CHECKED_STEPS))
        if not self.losses[-1] < self.losses[0]:
            raise WrongResultError(f"the loss went from {self.losses[0]:.4f} to {self.losses[-1]:.4f}")


def seconds_of_steps(options: Options) -> float:
    """How many seconds the steps take."""
    return len(WRAPPINGS) * sum(SECONDS_EACH[mode] for mode in options.modes) + SECONDS_TO_TIME


def add_steps(results: Results, options: Options, progress: Progress, sizes: Sizes) -> None:
    """Check all, time those that pass in turns, and add their figures."""
    trials: dict[str, StepTrial] = {}
    for subject in WRAPPINGS:
        for mode in results.modes:
            progress(f"{OP}: {subject}, {mode}", SECONDS_EACH[mode])
            prepared = _prepare(subject, mode, sizes)
            if isinstance(prepared, Gap):
                results.gaps.append(prepared)
            else:
                trials[prepared.variant.name] = prepared
    progress(f"{OP}: timing", SECONDS_TO_TIME)
    ratios = [(base, name) for name, trial in trials.items() if (base := trial.base) in trials]

    def add(measured: Measurement) -> None:
        for trial in trials.values():
            results.add(
                results.steps, partial(_figure, trial, measured), partial(Gap, OP, trial.subject, 1, trial.mode)
            )

    measure_into(add, [trial.variant for trial in trials.values()], options.timing(), ratios)


def _figure(trial: StepTrial, measured: Measurement) -> StepFigure:
    name, base = trial.variant.name, trial.base
    return StepFigure(
        trial.subject,
        trial.mode,
        measured.time(name),
        measured.ratio(base, name) if base in measured.rounds else None,
        trial.losses,
        weight_bytes(trial.model),
        tuple(measured.rounds[name]),
    )


def _prepare(subject: str, mode: str, sizes: Sizes) -> StepTrial | Gap:
    try:
        trial = StepTrial(subject, mode, sizes)
        trial.check()
    except Exception as error:  # noqa: BLE001  # whatever a type raises is the reason that the report gives
        return Gap(OP, subject, 1, mode, reason_of(error), kind_of(error))
    return trial
