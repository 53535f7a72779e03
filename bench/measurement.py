"""A measurement: nanoseconds per call, round by round, why it ended, and which figures are too noisy to be given."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .summary import REPORTED, Summary, least_squares_slope, paired_ratios, relative_width
from .verdict import Verdict, verdict


class Stop(str, enum.Enum):
    """Why a measurement ended."""

    NARROW = "all intervals are narrow enough"
    TIME = "time is out"
    ROUNDS = "all rounds were run"
    INTERRUPTED = "interrupted"


class TooNoisyError(RuntimeError):
    """A figure whose interval is too wide: giving it would mislead. `summary` holds it for those who look closer."""

    def __init__(self, what: str, summary: Summary, most: float, rounds: int, stopped: Stop | None) -> None:
        ended = f", {stopped.value}" if stopped else ""
        super().__init__(
            f"{what} is too noisy: its 95 % interval spans {summary.width:.0%} of it, {most:.0%} are allowed "
            f"(quartiles {summary.spread:.0%} apart, {rounds} rounds{ended})\n"
            "Measure for longer, on the thread's CPU clock, or on a quieter machine."
        )
        self.what, self.summary, self.most = what, summary, most


@dataclass
class Measurement:
    """Nanoseconds per call, variant by variant and round by round. Round `i` of all variants belongs together.

    A figure whose 95 % interval spans more than `refuse_above` of its median is refused: a TooNoisyError.
    """

    rounds: dict[str, list[float]]
    calls: dict[str, int] = field(default_factory=dict)
    stopped: Stop | None = None
    refuse_above: float | None = None

    def time(self, name: str) -> Summary:
        """Nanoseconds per call of one variant."""
        return self.given(f"the time of {name}", self.rounds[name])

    def ratio(self, name: str, baseline: str) -> Summary:
        """`name` over `baseline`, paired: each round gives one ratio."""
        return self.given(f"{name} / {baseline}", self.ratios(name, baseline))

    def ratios(self, name: str, baseline: str) -> list[float]:
        """`name` over `baseline`, round by round."""
        return paired_ratios(self.rounds[name], self.rounds[baseline])

    def verdict(self, name: str, baseline: str) -> Verdict:
        """Whether `name` is slower or faster than `baseline`."""
        return verdict(self.ratios(name, baseline))

    def slopes(self, names: Mapping[int, str]) -> list[float]:
        """Nanoseconds per layer: a least-squares line through layer -> variant, one line a round."""
        layers = sorted(names)
        columns = [self.rounds[names[layer]] for layer in layers]
        return [least_squares_slope(layers, row) for row in zip(*columns, strict=True)]

    def widest(self, ratios: Sequence[tuple[str, str]], confidence: float = REPORTED) -> float:
        """The widest interval of the ratios, or of all times where none is asked for, as a part of its median."""
        samples = [self.ratios(*pair) for pair in ratios] or list(self.rounds.values())
        return max(relative_width(sample, confidence) for sample in samples)

    def refused(self, ratios: Sequence[tuple[str, str]] = ()) -> int:
        """How many of the variants' times, and of these ratios, are too noisy to be given."""
        if self.refuse_above is None:
            return 0
        samples = [*self.rounds.values(), *(self.ratios(*pair) for pair in ratios)]
        return sum(Summary.of(sample).width > self.refuse_above for sample in samples)

    def whole_rounds(self) -> int:
        """How many rounds all variants have."""
        return min(map(len, self.rounds.values()), default=0)

    def interrupted(self) -> InterruptedMeasurement:
        """The error that carries this measurement, without the round that was not finished."""
        whole = self.whole_rounds()
        self.rounds = {name: rounds[:whole] for name, rounds in self.rounds.items()}
        self.stopped = Stop.INTERRUPTED
        return InterruptedMeasurement(self)

    def given(self, what: str, sample: Sequence[float]) -> Summary:
        """The summary of what was formed of these rounds, such as slopes; a TooNoisyError where it is too wide."""
        summary = Summary.of(sample)
        if self.refuse_above is not None and summary.width > self.refuse_above:
            raise TooNoisyError(what, summary, self.refuse_above, self.whole_rounds(), self.stopped)
        return summary


class InterruptedMeasurement(KeyboardInterrupt):  # as which it is no Error
    """The user ended a measurement. What was measured up to then, in whole rounds, is in `measurement`."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__(f"interrupted after {measurement.whole_rounds()} whole rounds")
        self.measurement = measurement
