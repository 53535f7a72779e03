"""A trial: one subject, one problem, eager or compiled. Built, checked against the exact product, then timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ..compiler import COMPILED, CountingInductor
from ..timing import Variant
from ..trials import LACKING, Gap, WrongResultError, kind_of, reason_of
from .accuracy import References, decibels
from .peers import known_crash
from .problems import Layer, Problem
from .results import Decibels
from .subjects import Subject, dequantized


class Built:
    """A subject's module around the weight of a layer: made when it is first asked for, and kept for all rows."""

    def __init__(self, subject: Subject, layer: Layer) -> None:
        self.subject = subject
        self.layer = layer

    @cached_property
    def module(self) -> nn.Module:
        """The module. What a foreign type raises, it raises here."""
        return self.subject.build(self.layer.weight())


@dataclass(frozen=True)
class Passed:
    """A checked trial: what is to be timed, and how accurate it is (None: a floor)."""

    variant: Variant
    decibels: Decibels | None


@dataclass(frozen=True)
class Trial:
    """One figure to be."""

    built: Built
    problem: Problem
    mode: str

    @property
    def name(self) -> str:
        """What tells the trials of one problem apart."""
        return f"{self.built.subject.name} | {self.mode}"

    def gap(self, reason: str, kind: str = LACKING) -> Gap:
        """Why this trial has no figure."""
        return Gap(self.problem.name, self.built.subject.name, 1, self.mode, reason, kind)

    def prepare(self, activations: Tensor, references: References) -> Passed | Gap:
        """The checked variant, compiled if it is to be; or a gap with the reason."""
        crash = known_crash(self.built.subject.name, self.problem, self.mode)
        if crash:
            return self.gap(crash)
        try:
            with torch.no_grad():
                return self._passed(activations, references)
        except Exception as error:  # noqa: BLE001  # whatever a foreign type raises is the reason that the report gives
            return self.gap(reason_of(error), kind_of(error))

    def _passed(self, activations: Tensor, references: References) -> Passed:
        module, backend = self.built.module, CountingInductor()
        function: Callable[[Tensor], Tensor] = module
        if self.mode == COMPILED:
            function = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
        given = self.built.subject.prepare(activations)
        function(given)
        result = function(given)  # what cannot be repeated cannot be timed in a loop
        if backend.graphs != (self.mode == COMPILED):
            raise WrongResultError(f"wrong way: {backend.graphs} graphs were compiled")
        return Passed(Variant(self.name, function, (given,), torch.no_grad), self._accuracy(result, references))

    def _accuracy(self, result: Tensor, references: References) -> Decibels | None:
        """How near the result is to the exact product, which has to be what this subject promises."""
        subject = self.built.subject
        if subject.accuracy is None:
            return None
        exact = references.product(dequantized(self.built.module))
        if result.shape != exact.shape:
            raise WrongResultError(f"wrong result: shape {tuple(result.shape)}, plain torch gives {tuple(exact.shape)}")
        original = references.product(self.problem.weight())
        found = Decibels(decibels(result, exact), decibels(result, original))
        subject.accuracy.check(found.to_dequantized, result.dtype)
        return found
