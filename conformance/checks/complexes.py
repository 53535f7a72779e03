"""Complex instances: the conj and neg bits of operands must not get lost below the handler."""

from __future__ import annotations

# ruff: noqa: ARG005 - each call has both operands
from typing import Any

import torch

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Kind, Subject

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)

_CALLS: dict[str, Any] = {
    "x * t": lambda x, t: x * t,
    "x * t.conj()": lambda x, t: x * t.conj(),
    "x.conj() * t": lambda x, t: x.conj() * t,
    "x.mH @ t": lambda x, t: x.mH @ t,
    "x @ t[0]": lambda x, t: x @ t[0],
    "x @ t[0].conj()": lambda x, t: x @ t[0].conj(),
    "torch.addmv(t[:, 0], x, t[0])": lambda x, t: torch.addmv(t[:, 0], x, t[0]),
    "torch.dot(x[0], t[0])": lambda x, t: torch.dot(x[0], t[0]),
    "torch.vdot(x[0], t[0])": lambda x, t: torch.vdot(x[0], t[0]),
    "torch.addcmul(t, x, x)": lambda x, t: torch.addcmul(t, x, x),
    "x.acos()": lambda x, t: x.acos() * t,
    "x.conj().imag * 2": lambda x, t: x.conj().imag * 2,
    "x.real * x.imag": lambda x, t: x.real * x.imag,
    "x.abs()": lambda x, t: x.abs(),
}
_VALUES: dict[str, Any] = {
    **_CALLS,
    "torch.fft.hfftn(x)": lambda x, t: torch.fft.hfftn(x),
    "torch.fft.ihfftn(x.real)": lambda x, t: torch.fft.ihfftn(x.real),
    "torch.linalg.pinv(x)": lambda x, t: torch.linalg.pinv(x),
    "x.conj().clone()": lambda x, t: x.conj().clone(),
    "x.conj() + 0": lambda x, t: x.conj() + 0,
    "x.conj().resolve_conj()": lambda x, t: x.conj().resolve_conj(),
    "x.conj().imag.resolve_neg()": lambda x, t: x.conj().imag.resolve_neg(),
}


def _operands(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    plain, other = (subject.plain(4, 8, dtype=torch.complex64, seed=seed) for seed in (0, 1))
    if not subject.takes(plain):
        raise NotApplicable("it takes no complex tensor")
    return plain, other


@check("autograd", "complex results are wrong in sign: conj and neg bits are lost", kinds=VALUED)
def complex_values_are_right(subject: Subject) -> None:
    """Ops on complex instances, conjugated and negated views among them, give the plain values. Below a Python handler
    torch ignores the bits that it keeps in place of a negation, and composite ops go wrong in silence.
    """
    plain, other = _operands(subject)
    for call, function in _VALUES.items():
        got, expected = function(subject.wrap(plain), other), function(subject.reference(plain), other)
        subject.same(call, _resolved(got), expected.resolve_conj().resolve_neg(), loosely=True)


@check("autograd", "a wrapped conj view reads as the tensor that it is a view of", kinds=VALUED)
def wrapped_views_keep_their_bits(subject: Subject) -> None:
    """``make`` of a tensor with a conj or a neg bit gives an instance of its values, and ops on it use them."""
    plain, other = _operands(subject)
    for call, bits in (("t.conj()", plain.conj()), ("t.conj().imag", plain.conj().imag)):
        if not subject.takes(bits.clone()):
            continue
        made, expected = subject.make(bits), subject.reference(bits.clone())
        subject.same(f"make({call})", _resolved(made), expected)
        right = other if bits.is_complex() else other.real
        subject.same(f"make({call}) * y", _resolved(made * right), expected * right, loosely=True)


@check("autograd", "complex autograd gives wrong gradients, silently", kinds=VALUED)
def complex_gradients_are_right(subject: Subject) -> None:
    """Gradients of complex ops are those of the plain run: their formulas conjugate operands, which sets a bit only."""
    plain, other = _operands(subject)
    for call, function in _CALLS.items():
        x, t = subject.wrap(plain, grad=True), other.clone().requires_grad_()
        p, u = subject.values(x).clone().requires_grad_(), other.clone().requires_grad_()
        function(p, u).abs().sum().backward()
        function(x, t).abs().sum().backward()
        for name, got, expected in (("x.grad", x.grad, p.grad), ("t.grad", t.grad, u.grad)):
            text = f"({call}).abs().sum().backward(); {name}"
            if (got is None) != (expected is None):
                raise MismatchError(text, expected, got)
            if expected is not None:
                subject.same(text, _resolved(got), expected.resolve_conj().resolve_neg(), loosely=True)


def _resolved(value: Any) -> Any:
    """A plain result without bits; an instance as it is: its decoding has to see to them."""
    return value.resolve_conj().resolve_neg() if type(value) is torch.Tensor else value
