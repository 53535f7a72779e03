"""How the class of a subject is judged on samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...subclasses.core.policy import Gradients
from ...subclasses.core.wrapper import WrapperTensor
from ..sample_limits import BRANCHES, PRODUCTS, reordered, tolerances
from ..subject import Kind, Make, Subject, leaves_of
from .compare import Candidate, UnforeseenError, same_bits
from .decoding import DecodingCandidate
from .samples import seed


def candidate_of(subject: Subject) -> Candidate:
    """A wrapper of the very values is judged as one; any other class, a nest with such a one inside, too, decodes."""
    plain = subject.plain(4, 8)
    if subject.kind is Kind.TRANSPARENT and same_bits(subject.reference(plain), plain):
        # To decode may copy, which gives other strides.
        unwrap = innermost if holds(subject, plain) else subject.decode
        return Transparent(subject.cls, sharing(subject), unwrap, subject)
    random = is_random(subject)
    return Decoding(
        subject.cls,
        seeded(subject) if random else subject.make,
        subject.decode,
        base=WrapperTensor if issubclass(subject.cls, WrapperTensor) else subject.cls,
        rewrite=unforeseen if random else rewriting(subject),
        loose=tolerances(),
        subject=subject,
    )


def innermost(instance: Any) -> torch.Tensor:
    """The first plain tensor inside."""
    return leaves_of(instance)[0]


def sharing(subject: Subject) -> Make:
    """``make``; of lamina's ``from_plain`` the part that does not copy, so that strides and shared storages remain."""
    cls = subject.cls
    return cls.encode if issubclass(cls, WrapperTensor) and subject.make == cls.from_plain else subject.make


def holds(subject: Subject, plain: torch.Tensor) -> bool:
    """Whether the first tensor inside of an instance has its values."""
    leaves = leaves_of(subject.wrap(plain))
    return bool(leaves) and leaves[0].shape == plain.shape and same_bits(leaves[0], plain)


@dataclass(frozen=True)
class Transparent(Candidate):
    """Operands that ``make`` refuses stay plain. A gradient is plain, if the class says so or is not lamina's."""

    subject: Subject

    @property
    def plain_gradients(self) -> bool:
        cls = self.cls
        return not issubclass(cls, WrapperTensor) or cls.gradients is Gradients.PLAIN

    def reference(self, plain: torch.Tensor) -> torch.Tensor:
        """Of the geometry that ``make`` gives an instance: it may copy."""
        return self.unwrap(self.wrap(plain.detach())).detach()

    def takes(self, tensor: torch.Tensor) -> bool:
        return accepts(self.subject, tensor)

    def tolerance(self, op: str, dtype: torch.dtype) -> float | None:
        if op in BRANCHES:
            return reordered(dtype)
        return self.subject.rtol if op in PRODUCTS else None


@dataclass(frozen=True, kw_only=True)
class Decoding(DecodingCandidate):
    """All dtypes are wrapped that ``make`` takes. A gradient may be of the class, unless that says otherwise."""

    subject: Subject

    def takes(self, tensor: torch.Tensor) -> bool:
        narrow = tensor.is_floating_point() and tensor.element_size() == 1
        if narrow or tensor.layout is not torch.strided or tensor.is_nested:
            return False
        return bool(tensor.detach().isfinite().all()) and accepts(self.subject, tensor)

    def tolerance(self, op: str, dtype: torch.dtype) -> float | None:
        usual = super().tolerance(op, dtype) if dtype.is_floating_point or dtype.is_complex else None
        rtol = self.subject.rtol
        return max(usual, rtol) if usual is not None and rtol is not None else usual

    def check_gradient(self, where: str, gradient: torch.Tensor | None) -> None:
        cls = self.cls
        if issubclass(cls, WrapperTensor) and cls.gradients is Gradients.PLAIN:
            super().check_gradient(where, gradient)


def accepts(subject: Subject, tensor: torch.Tensor) -> bool:
    """Whether ``make`` takes it, and makes something of its dtype."""
    return refusal(subject, tensor) is None


def refusal(subject: Subject, tensor: torch.Tensor) -> str | None:
    """Why no instance is made of it; None where one is."""
    try:
        made = subject.make(tensor.detach())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(made, subject.cls):
        return f"make returns a {type(made).__name__}"
    return None if made.dtype == tensor.dtype else f"make gives {made.dtype}"


def is_random(subject: Subject) -> bool:
    """Whether two instances of the same values differ."""
    plain = subject.plain(4, 8)
    one, other = (subject.decode(subject.make(plain.clone())) for _ in range(2))
    return not same_bits(one, other)


def seeded(subject: Subject) -> Any:
    """``make``, with the same draws each time."""

    def make(plain: torch.Tensor) -> torch.Tensor:
        seed()
        return subject.make(plain)

    return make


def unforeseen(instance: Any, values: torch.Tensor) -> Any:  # noqa: ARG001
    """What an instance of a random class stands for once values were written to it."""
    raise UnforeseenError


def rewriting(subject: Subject) -> Any:
    """What an instance stands for once values were written to it: what a new one of them does. Where ``make`` refuses
    them, infinities say, it is what the class's own ``copy_`` leaves.
    """

    def values_of(instance: Any, values: torch.Tensor) -> torch.Tensor:
        if accepts(subject, values):
            return subject.decode(subject.make(values)).detach()
        try:
            return subject.decode(instance.copy_(values)).detach()
        except Exception:
            return values  # it refuses: the other run raises as well, and is a finding then

    return values_of
