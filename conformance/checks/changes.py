"""Writes between forward and backward: autograd raises, or uses the old values. Never is a gradient silently wrong."""

from __future__ import annotations

from typing import Any

import torch

from ..check import check
from ..outcome import NotApplicable
from ..subject import Kind, Subject

aten = torch.ops.aten
VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
REFUSALS = (RuntimeError, NotImplementedError, ValueError)


def _noticed(subject: Subject, writes: dict[str, Any]) -> None:
    """After each of the writes to an instance that the backward needs, it raises, or uses the old values."""
    done = 0
    for call, write in writes.items():
        x = subject.new(4, 8, grad=True)
        expected = 2 * subject.values(x)
        loss = (x * x).sum()
        try:
            with torch.no_grad():
                write(x)
        except REFUSALS:
            continue
        done += 1
        try:
            loss.backward()
        except RuntimeError:
            continue
        subject.same(f"loss = (x * x).sum(); {call}; loss.backward(); x.grad", x.grad, expected, loosely=True)
    if not done:
        raise NotApplicable("it refuses such writes")


@check("autograd", "a wrong gradient after an in-place op, and no error", kinds=VALUED)
def changes_of_a_saved_instance_are_noticed(subject: Subject) -> None:
    """An instance that the backward needs is written to, directly or by a view: the backward raises, or uses the old
    values."""
    writes: dict[str, Any] = {
        "x.mul_(3)": lambda x: x.mul_(3),
        "x.copy_(x + 1)": lambda x: x.copy_(x + 1),
        "x[:2].mul_(3)": lambda x: x[:2].mul_(3),
        "x.t().mul_(3)": lambda x: x.t().mul_(3),
        "x.detach().mul_(3)": lambda x: x.detach().mul_(3),
        "x[0] = 0": lambda x: x.__setitem__(0, 0.0),
    }
    _noticed(subject, writes)


@check("autograd", "a wrong gradient after a foreach or fused optimizer step, and no error", kinds=VALUED)
def writes_to_lists_are_noticed(subject: Subject) -> None:
    """The same for ops that write to lists of tensors, as optimizers do: torch counts such writes for plain tensors,
    and not for wrappers."""
    writes: dict[str, Any] = {
        "torch._foreach_mul_([x], 3)": lambda x: aten._foreach_mul_([x], 3.0),
        "torch._foreach_copy_([x], [x + 1])": lambda x: aten._foreach_copy_([x], [x + 1]),
        "SGD([x], foreach=True).step()": _step,
    }
    _noticed(subject, writes)


def _step(x: torch.Tensor) -> None:
    x.grad = torch.ones(x.shape, device=x.device)
    torch.optim.SGD([x], lr=1.0, foreach=True).step()
    x.grad = None


class _Squared(torch.autograd.Function):
    """The square of a plain tensor, which is wrapped to be saved."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, subject: Subject) -> torch.Tensor:
        torch.manual_seed(0)
        wrapped = subject.make(source.detach())
        ctx.subject = subject
        ctx.save_for_backward(wrapped)
        return subject.values(wrapped).square()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (wrapped,) = ctx.saved_tensors
        return gradient * 2 * ctx.subject.values(wrapped), None


@check("autograd", "wrapping inside an autograd.Function hides that the tensor was changed later", kinds=VALUED)
def changes_of_a_wrapped_source_are_noticed(subject: Subject) -> None:
    """A tensor is wrapped and the wrapper saved; then the tensor is written to. ``make`` copied it, or the backward
    raises. Torch counts the versions of the wrapper, and sees no write to the tensor inside.
    """
    source = subject.plain(4, 8).requires_grad_()
    middle = source * 1
    expected = 2 * subject.reference(middle.detach())
    square: Any = _Squared.apply
    loss = square(middle, subject).sum()
    with torch.no_grad():
        middle.mul_(3)
    try:
        loss.backward()
    except RuntimeError:
        return
    call = "ctx.save_for_backward(make(t)), then t.mul_(3), then backward"
    subject.same(f"{call}: the gradient (or an error)", source.grad, expected, loosely=True)
