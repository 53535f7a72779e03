"""What the backward computes again, or fetches from elsewhere: checkpointing, and hooks on saved tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from ..check import check
from ..outcome import MismatchError
from ..structure import check_structure, same_bits
from ..subject import Kind, Subject

F = torch.nn.functional
VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)


def _block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight).relu()


def _gradients(subject: Subject, run: Any) -> list[Any]:
    """The gradients of the plain input and of the weight, an instance, after ``run(input, weight)``."""
    x, weight = subject.plain(2, 8, seed=1).requires_grad_(), subject.new(4, 8, grad=True)
    run(x, weight).sum().backward()
    return [x.grad, weight.grad]


def _same_gradients(subject: Subject, call: str, got: list[Any], expected: list[Any]) -> None:
    for name, one, wanted in zip(("input.grad", "weight.grad"), got, expected, strict=True):
        if wanted is None and one is None:
            continue
        if one is None or type(one) is not type(wanted):
            raise MismatchError(f"{call}: {name}", type(wanted), type(one))
        subject.same(f"{call}: {name}", one, subject.values(wanted))


def _checkpointed(subject: Subject, *, reentrant: bool) -> None:
    expected = _gradients(subject, _block)
    for how in ("as an argument", "in the closure"):
        seen: list[Any] = []

        def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            seen.append(weight)  # noqa: B023 - called within this turn
            return _block(x, weight)

        def run(x: torch.Tensor, weight: torch.Tensor) -> Any:
            if how == "as an argument":  # noqa: B023
                return checkpoint(block, x, weight, use_reentrant=reentrant)
            return checkpoint(lambda each: block(each, weight), x, use_reentrant=reentrant)

        call = f"checkpoint(block, use_reentrant={reentrant}), with x {how}"
        got = _gradients(subject, run)
        if len(seen) != 2:
            raise MismatchError(f"{call}: runs of the block", 2, len(seen))
        check_structure(subject, f"{call}: x in the second run", seen[1], seen[0])
        if not same_bits(seen[1], seen[0]):
            raise MismatchError(f"{call}: x in the second run", "the inner tensors of the first", seen[1])
        _same_gradients(subject, call, got, expected)


@check("autograd", "checkpointing: the recomputed forward sees plain tensors", kinds=VALUED)
def checkpointing_keeps_the_class(subject: Subject) -> None:
    """Non-reentrant checkpointing: the second forward sees the class, context and values of the first, and gradients
    are those without checkpointing."""
    _checkpointed(subject, reentrant=False)


@check("autograd", "reentrant checkpointing: the recomputed forward sees plain tensors", kinds=VALUED)
def reentrant_checkpointing_keeps_the_class(subject: Subject) -> None:
    """Reentrant checkpointing: it detaches what it saved, and runs a backward within the backward."""
    _checkpointed(subject, reentrant=True)


@check("autograd", "CheckpointError: recomputed values have other metadata than saved ones", kinds=VALUED)
def packed_tensors_keep_the_wrapper(subject: Subject) -> None:
    """Hooks that pack and unpack saved tensors (a copy, an offload) get instances with their context, may hand back a
    copy, and change no gradient; also around a checkpoint, which compares metadata.
    """
    expected = _gradients(subject, _block)
    whole, seen = subject.new(4, 8), []

    def pack(saved: torch.Tensor) -> torch.Tensor:
        seen.append(saved)
        return saved.detach().clone()

    def packed(x: torch.Tensor, weight: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            return _block(x, weight)

    def offloaded(x: torch.Tensor, weight: torch.Tensor) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return _block(x, weight)

    def both(x: torch.Tensor, weight: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            return checkpoint(_block, x, weight, use_reentrant=False)

    runs = {"saved_tensors_hooks(clone, ...)": packed, "save_on_cpu()": offloaded, "checkpoint within hooks": both}
    for call, run in runs.items():
        _same_gradients(subject, f"with {call}", _gradients(subject, run), expected)
    for saved in seen:
        if subject.is_instance(saved) and tuple(saved.shape) == (4, 8):
            check_structure(subject, "what a pack hook gets", saved.detach(), whole)
