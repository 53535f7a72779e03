"""A trial: one subject, one case, a number of layers, one circumstance. Checked against plain, then timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .cases import Arguments, Case, Circumstance, map_tensors, tensors_in
from .peers import prepared_answer
from .subjects import Subject
from .timing import Variant

LACKING, WRONG, NOISY = "lacking", "wrong", "noisy"


class WrongResultError(RuntimeError):
    """A variant gives another result than plain torch, so timing it would mean nothing."""


@dataclass(frozen=True)
class Gap:
    """A figure that is not there, and why: the operation is lacking, its result is wrong, or its time was too noisy."""

    op: str
    subject: str
    layers: int
    circumstance: str
    reason: str
    kind: str = LACKING


@dataclass(frozen=True)
class Trial:
    """One figure to be: how to build its arguments, check its result and time it."""

    case: Case
    subject: Subject
    layers: int
    circumstance: Circumstance

    @property
    def name(self) -> str:
        """What tells the trials of one case apart."""
        return f"{self.subject.name} | {self.layers} | {self.circumstance.name}"

    def gap(self, reason: str, kind: str = LACKING) -> Gap:
        """Why this trial is not timed."""
        return Gap(self.case.op, self.subject.name, self.layers, self.circumstance.name, reason, kind)

    def prepare(self) -> Variant | Gap:
        """The checked variant, ready to be timed; or a gap with the reason."""
        if self.case.in_place and not self.subject.computes:
            return self.gap("it computes nothing, so an in-place result cannot be checked")
        try:
            self.check()
            args = self.arguments()
            self._rehearse(args)
        except Exception as error:  # noqa: BLE001  # whatever a foreign type raises is the reason that the report gives
            return self.gap(reason_of(error), kind_of(error))
        return Variant(self.name, self._function, args, self.scope)

    def check(self) -> None:
        """Raise WrongResultError unless the wrapped call gives what plain torch gives for the same values."""
        args, plain_args = self.arguments(), self._plain_arguments()
        expected = self._run(plain_args, wrapped=False)
        got = map_tensors(self._run(args, wrapped=True), self._unwrap)
        mine, plain = tensors_in(got), tensors_in(expected)
        if len(mine) != len(plain):
            raise WrongResultError(f"wrong result: {len(mine)} tensors, plain torch gives {len(plain)}")
        for mine_tensor, plain_tensor in zip(mine, plain, strict=True):
            compare(mine_tensor, plain_tensor, self.subject.tolerance if self.subject.has_values else None)

    def _rehearse(self, args: Arguments) -> None:
        """Call twice in one scope: what cannot be repeated cannot be timed in a loop."""
        with self.scope():
            for _ in range(2):
                self._function(*args)

    def arguments(self) -> Arguments:
        """Fresh arguments in their layers."""
        wrapped = [self._wrap(index, arg) for index, arg in enumerate(self.case.make())]
        return self._require_grad(tuple(wrapped))

    def _plain_arguments(self) -> Arguments:
        """Plain tensors with the values that the wrapped arguments stand for (a quantized weight is not its origin)."""
        if not (self.subject.computes and self.subject.has_values):
            return self._require_grad(self.case.make())
        args = [map_tensors(self._wrap(index, arg), self._unwrap_operand) for index, arg in enumerate(self.case.make())]
        return self._require_grad(tuple(args))

    def _wrap(self, index: int, argument: Any) -> Any:
        if self.subject.weight_only and index != self.case.weight:
            return argument
        return map_tensors(argument, lambda tensor: self.subject.wrap_layers(tensor, self.layers))

    def _unwrap_operand(self, tensor: Tensor) -> Tensor:
        return tensor if type(tensor) is Tensor else self.subject.unwrap_layers(tensor, self.layers)

    def _unwrap(self, tensor: Tensor) -> Tensor:
        """The plain value of a result. All layers must be there, unless a weight-only type hands out plain results."""
        if self.subject.weight_only and type(tensor) is Tensor:
            return tensor
        try:
            return self.subject.unwrap_layers(tensor, self.layers)
        except AttributeError as error:
            raise WrongResultError(f"wrong result: a {type(tensor).__name__} without {self.layers} layers") from error

    def _require_grad(self, args: Arguments) -> Arguments:
        if self.circumstance.requires_grad:
            for tensor in tensors_in(args):
                tensor.requires_grad_()
        return args

    @property
    def _function(self) -> Any:
        return self.case.overload if self.circumstance.through_overload else self.case.function

    def _run(self, args: Arguments, *, wrapped: bool) -> object:
        with self.scope() if wrapped else self.circumstance.scope():
            return self.case.outcome(self._function(*args), args)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What the call is made in: the circumstance, and the layers of a mode."""
        with self._answer(), self.circumstance.scope(), self.subject.scope_layers(self.layers):
            yield

    @contextmanager
    def _answer(self) -> Iterator[None]:
        """A subject that computes nothing is handed the plain answer beforehand."""
        if self.subject.computes:
            yield
            return
        plain = self.case.make()
        with prepared_answer(self.case.outcome(self._function(*plain), plain)):
            yield


def compare(mine: Tensor, plain: Tensor, tolerance: float | None) -> None:
    """Raise WrongResultError unless shape, dtype and values agree; `tolerance` is relative to the largest value, None:
    there are no values."""
    if mine.shape != plain.shape or mine.dtype != plain.dtype:
        raise WrongResultError(
            f"wrong result: shape {tuple(mine.shape)} and dtype {mine.dtype}, "
            f"plain torch gives {tuple(plain.shape)} and {plain.dtype}"
        )
    if tolerance is None:
        return
    with torch.no_grad():
        error = float((mine - plain).abs().max() / plain.abs().max().clamp_min(1e-12)) if plain.numel() else 0.0
    if not error <= tolerance:
        raise WrongResultError(f"wrong result: off by {error:.3g} of the largest value, {tolerance:.3g} is allowed")


def kind_of(error: BaseException) -> str:
    """Of a gap with this reason."""
    return WRONG if isinstance(error, WrongResultError) else LACKING


def reason_of(error: BaseException) -> str:
    """An error in one line: its class, and the first line of its text."""
    lines = str(error).strip().splitlines() or ["no message"]
    first = lines[0] if len(lines[0]) <= 160 else lines[0][:157] + "..."
    return f"{type(error).__name__}: {first}"
