"""What every bench's results have: the machine, how it was measured, the figures, what is missing, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

from .subjects import Absence, Subject
from .timing import Settings, TooNoisyError
from .trials import NOISY, WRONG, Gap, reason_of

SCHEMA = 1
Figure = TypeVar("Figure")


@dataclass
class Record:
    """All that one run of a bench measured: plain data, JSON-able. `subjects`: where each comes from, by name;
    `asked_for`: those that the user named. `not_compiled` says why nothing was compiled, `stopped` that it was cut
    short."""

    bench: ClassVar[str]

    machine: dict[str, Any]
    settings: Settings
    not_compiled: str | None = None
    stopped: str | None = None
    subjects: dict[str, str] = field(default_factory=dict)
    asked_for: list[str] = field(default_factory=list)
    figures: list[Any] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)

    def note(self, subjects: Sequence[Subject]) -> None:
        """Note where these subjects come from, and which of them the user named."""
        self.subjects |= {each.name: each.origin for each in subjects}
        self.asked_for += [each.name for each in subjects if each.asked_for]

    def add(self, into: list[Figure], make: Callable[[], Figure], gap: Callable[[str, str], Gap]) -> None:
        """Add a figure; where it is too noisy to be given, the gap that is made of the reason and its kind."""
        try:
            into.append(make())
        except TooNoisyError as error:
            self.gaps.append(gap(reason_of(error), NOISY))

    def refused(self) -> list[Gap]:
        """The wrong results of what the user asked for."""
        return [gap for gap in self.gaps if gap.kind == WRONG and gap.subject in self.asked_for]

    @property
    def failed(self) -> bool:
        """Whether the command's exit status is to tell of a failure."""
        return bool(self.refused())

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dictionaries only. Times are nanoseconds."""
        return {"schema": SCHEMA, "bench": self.bench, **asdict(self), "settings": self.settings.to_json()}
