"""A plan: what a step needs, as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .costs import StepCosts
from .devices import Device
from .ledger import CATEGORIES, Step
from .scratch import Scratch
from .timeline import Moment, Peak


@dataclass(frozen=True, repr=False)
class Plan:
    """Memory, operations and time of a step, planned without data. Get it from ``plan_step``.

    ``device``: where; what is on other devices shows in ``elsewhere``, by the most that is alive there. ``hardware``:
    its line of the table of devices, if one was named. ``moments``: the time line, by operator of ``steps``.
    ``at_end``: bytes that are alive when the step returns, by category. ``asked_bytes``: the peak of what tensors ask
    for, which is ``peak_bytes`` unless an allocator's rounding is planned; then ``reserved_bytes`` is what it takes
    from the device. ``scratch``: an estimate of what kernels take while they run. ``compiled_calls``: how often
    compiled code ran; its graphs' operators are planned one by one. ``inductor_graphs``: how many of them were meant
    for Inductor, and planned without its fusion.
    ``error``: what ended the step before its end.
    """

    device: torch.device
    hardware: Device | None
    allocator: str | None
    steps: list[Step]
    moments: list[Moment]
    peak: Peak
    at_end: dict[str, int]
    elsewhere: dict[str, int]
    asked_bytes: int
    reserved_bytes: int | None
    costs: StepCosts
    scratch: Scratch
    compiled_calls: int = 0
    inductor_graphs: int = 0
    error: str | None = None

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors that are alive at once. Each storage counts once; the scratch memory of kernels,
        such as the workspace of a convolution, is not seen by any tool that sees operators, and not in it: see
        ``scratch``."""
        return self.peak.nbytes

    @property
    def scratch_bytes(self) -> int:
        """An estimate: the kernels' scratch memory at the moment when tensors and scratch together take the most."""
        return self.scratch.nbytes

    @property
    def by_category(self) -> dict[str, int]:
        """The peak, split by what the storages are: see ``lamina.modes.plan.CATEGORIES``."""
        return self.peak.by_category

    @property
    def flops(self) -> int:
        """Floating-point operations of the step: a multiplication and an addition are two, by the formulas of
        ``torch.utils.flop_counter``. They count a causal mask as if all was computed."""
        return self.costs.sums.total.flops

    def flops_by(self, what: str) -> dict[str, int]:
        """Operations by "phase", "module", "op" or "dtype", the most first."""
        return {str(key): cost.flops for key, cost in self.costs.sums.by(what).items() if cost.flops}

    @property
    def bytes_moved(self) -> int:
        """What operators read and write: each argument once, each result or changed argument once."""
        return self.costs.sums.total.nbytes

    @property
    def seconds(self) -> float | None:
        """An estimate of the time at best: each operator takes as long as the slower of computing and moving its bytes
        at the rates of the data sheet, one after the other. Real steps take longer. None: no device of the table."""
        return None if self.hardware is None else sum(self.costs.seconds_on(self.hardware).values())

    @property
    def needed_bytes(self) -> int:
        """What the device must have: what the allocator reserves, where it is planned, else the peak."""
        return self.peak_bytes if self.reserved_bytes is None else self.reserved_bytes

    @property
    def missing_bytes(self) -> int | None:
        """By how much the device is too small; 0 or less: it fits. None: no device of the table."""
        return None if self.hardware is None else self.needed_bytes - self.hardware.memory

    @property
    def missing_with_scratch(self) -> int | None:
        """As ``missing_bytes``, with what the estimated scratch adds to the peak."""
        if self.missing_bytes is None:
            return None
        return self.missing_bytes + self.scratch.peak_bytes - self.peak_bytes

    @property
    def fits(self) -> bool | None:
        """Whether the device has enough memory. None: no device of the table; or the step ended early, and what it got
        to fits."""
        if self.missing_bytes is None or (self.error is not None and self.missing_bytes <= 0):
            return None
        return self.missing_bytes <= 0

    def summary(self) -> str:
        """All of it in words, a dozen lines."""
        from .report import summary

        return summary(self)

    __str__ = summary

    def __repr__(self) -> str:
        return f"<Plan: peak {self.peak_bytes:,} bytes on {self.device}, {self.flops:,} FLOPs, {len(self.steps)} ops>"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain types; bytes and seconds."""
        hardware = self.hardware
        return {
            "device": str(self.device),
            "hardware": hardware and {"name": hardware.name, "memory": hardware.memory, "source": hardware.source},
            "allocator": self.allocator,
            "peak_bytes": self.peak_bytes,
            "asked_bytes": self.asked_bytes,
            "reserved_bytes": self.reserved_bytes,
            "by_category": self.by_category,
            "at_end": self.at_end,
            "elsewhere": self.elsewhere,
            "scratch": self.scratch.to_json(),
            "peak_op": self.peak.step and self.peak.step._asdict(),
            "fits": self.fits,
            "missing_bytes": self.missing_bytes,
            "missing_with_scratch": self.missing_with_scratch,
            "flops": self.flops,
            "flops_by_phase": self.flops_by("phase"),
            "flops_by_module": self.flops_by("module"),
            "bytes_moved": self.bytes_moved,
            "compiled_calls": self.compiled_calls,
            "inductor_graphs": self.inductor_graphs,
            "seconds_at_best": None if hardware is None else self.costs.seconds_on(hardware),
            "error": self.error,
            "categories": list(CATEGORIES),
            "time_line": [self._line(moment) for moment in self.moments],
        }

    def _line(self, moment: Moment) -> list[Any]:
        step = self.steps[moment.number] if moment.number >= 0 else None
        where = [step.op, step.phase, step.module] if step else [None, "before", None]
        return [moment.number, *where, *moment.nbytes]

    def plot(self, path: str | Path) -> None:
        """Writes a picture of the time line, PNG or SVG by the name of ``path``: bytes alive over the step's operators,
        stacked by category, the peak marked. Needs matplotlib."""
        from .plot import write_plot

        write_plot(self, Path(path))
