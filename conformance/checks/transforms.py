"""inference_mode, and composite operators, which reach a class whole there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..calls import Call, X, Y, compare, function, item, method, refused_by_step
from ..check import check
from ..subject import VALUED, Kind, Subject


def written(text: str, called: Callable[[Any, Any], Any]) -> Call:
    """``called(x, y)``, as ``text`` has it."""
    return Call(text, called, (X, Y), {})


MODES: dict[str, Callable[[], Any]] = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}
VIEWS = (
    method("detach"),
    method("t"),
    method("view", 8, 4),
    method("view", -1),
    method("transpose", 0, 1),
    method("permute", 1, 0),
    method("unsqueeze", 0),
    method("expand", 2, 4, 8),
    method("narrow", 0, 1, 2),
    method("select", 0, 1),
    method("chunk", 2),
    method("split", 2),
    method("unbind"),
    item(slice(1, 3)),
    item(slice(None), slice(4, 8)),
    function(torch.ops.aten.alias.default, X),
)
EXACT = (
    method("clone"),
    method("contiguous"),
    method("to", torch.bfloat16),
    method("abs"),
    method("clamp", min=0.0),
    function(torch.add, X, 1),
    function(torch.mul, X, 2.5),
    function(torch.sub, X, X, alpha=2),
    function(torch.gt, X, 0),
    function(torch.zeros_like, X),
    function(torch.cat, [X, X]),
    function(torch.stack, [X, X], dim=1),
)
# Those that are taken apart on their way to a class, but arrive whole under inference_mode.
COMPOSITE = (
    method("reshape", 8, 4),
    method("flatten"),
    method("bfloat16"),
    function(F.linear, Y, X),
    function(F.linear, X, Y, bias=torch.ones(4)),
    written("torch.matmul(y, x.t())", lambda x, y: torch.matmul(y, x.t())),
    written("x @ y.t()", lambda x, y: x @ y.t()),
    function(torch.einsum, "ij,kj->ik", X, Y),
    function(torch.inner, X, Y),
    function(torch.tensordot, X, Y),
    function(torch.kron, X, Y),
    function(torch.trapezoid, X),
    function(F.layer_norm, X, (8,)),
    function(F.softmax, X, dim=-1),
    function(F.cosine_similarity, X, Y),
    function(F.mse_loss, X, Y),
    function(F.pad, X, (1, 1)),
    function(torch.var, X, dim=1),
    function(torch.diff, X),
    function(torch.movedim, X, 0, 1),
)


def everywhere(subject: Subject, calls: Iterable[Call], *, loosely: bool = False) -> None:
    """Compares the calls under inference_mode, on instances that were made inside, outside, and as leaves."""
    plain, y = subject.reference(subject.plain(4, 8)), subject.plain(4, 8, seed=1)
    outside = {"an instance made outside": subject.new(4, 8), "a leaf that requires grad": subject.new(4, 8, grad=True)}
    with torch.inference_mode():
        made = {"an instance made under inference_mode": subject.new(4, 8), **outside}
        for name, x in made.items():
            of = f"{name}, under inference_mode"
            compare(subject, calls, x, plain, of=of, loosely=loosely, refusable=refused_by_step, y=y)


@check("transforms", "inference_mode breaks detach and views of wrappers", kinds=VALUED)
def inference_mode_takes_views(subject: Subject) -> None:
    """``detach`` and views under ``inference_mode``, of instances made inside and outside of it, are those of plain
    tensors."""
    everywhere(subject, VIEWS)


@check("transforms", "arithmetic on a wrapper fails under inference_mode")
def inference_mode_computes(subject: Subject) -> None:
    """Copies, arithmetic, comparisons and joins under ``inference_mode``, of instances from inside and outside."""
    everywhere(subject, EXACT)


@check("transforms", "composite ops reach dispatch only in inference mode, and are unknown there")
def composite_ops_agree_in_all_modes(subject: Subject) -> None:
    """``linear``, ``matmul``, ``einsum``, ``layer_norm``, ``reshape`` and others that PyTorch takes apart give the same
    with gradients on, off, and under ``inference_mode``, where they arrive whole."""
    everywhere(subject, COMPOSITE, loosely=True)
    if subject.kind is Kind.FAKE:  # plain tensors have data
        return
    plain, y = subject.reference(subject.plain(4, 8)), subject.plain(4, 8, seed=1)
    for name, mode in MODES.items():
        for x in (subject.new(4, 8), subject.new(4, 8, grad=True)):
            with mode():
                of = f"an instance under {name}"
                compare(subject, COMPOSITE, x, plain, of=of, loosely=True, refusable=refused_by_step, y=y)


@check("transforms", "writes under inference_mode are lost or refused", kinds=VALUED)
def inference_mode_writes(subject: Subject) -> None:
    """``add_``, ``copy_``, ``x[0] = value`` and ``zero_`` under ``inference_mode`` reach instances made inside and
    outside of it, and are seen afterwards."""
    values = subject.plain(4, 8, seed=1)

    def assign(x: Any) -> None:
        x[0] = 1.0

    for call, write in (
        ("x.add_(1)", lambda x: x.add_(1)),
        ("x.mul_(2)", lambda x: x.mul_(2)),
        ("x.copy_(plain)", lambda x: x.copy_(values)),
        ("x[0] = 1.0", assign),
        ("x.zero_()", lambda x: x.zero_()),
    ):
        outside = subject.new(4, 8)
        with torch.inference_mode():
            expected = subject.reference(subject.plain(4, 8))
            write(expected)
            inside = subject.new(4, 8)
            for x, where in ((inside, "made under inference_mode"), (outside, "made outside")):
                write(x)
                subject.stored(f"{call} under inference_mode, x {where}", x, expected)
        subject.stored(f"{call} under inference_mode, read afterwards", outside, expected.clone())


@check("transforms", "what was computed under inference_mode can't be used after it")
def inference_results_can_be_used_outside(subject: Subject) -> None:
    """Results and views made under ``inference_mode`` take part in ops outside of it, as plain ones do; an instance
    that was used there still trains."""
    plain, x = subject.reference(subject.plain(4, 8)), subject.new(4, 8)
    with torch.inference_mode():
        results = [x + 1, x.t(), x.detach(), x[1:3], subject.new(4, 8)]
        expected = [plain + 1, plain.t(), plain, plain[1:3], plain]
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            doubled = [result * 2 for result in results]
        call = "[x + 1, x.t(), x.detach(), x[1:3], make(plain)] of inference_mode, each * 2 outside"
        subject.same(call, doubled, [each * 2 for each in expected])
    leaf, wanted = subject.new(4, 8, grad=True), plain.clone().requires_grad_()
    with torch.inference_mode():
        F.linear(subject.plain(3, 8), leaf)
    for weight in (leaf, wanted):
        F.linear(subject.plain(3, 8, seed=2), weight).sum().backward()
    subject.same("w.grad, after w was used under inference_mode", leaf.grad, wanted.grad, loosely=True)


class Inferring(nn.Module):
    """Multiplies by a slice of its buffer, under inference_mode."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight: Any = self.weight
        return F.linear(x, weight[1:3])


@check("transforms", "torch.compile of a forward under inference_mode fails on a slice of a buffer")
def inference_mode_in_a_module_compiles(subject: Subject) -> None:
    """A module whose ``forward`` is decorated with ``torch.inference_mode()`` and slices a buffer of the class compiles
    (backend ``aot_eager``) and gives what it gives without."""
    module = Inferring(subject.new(4, 8))
    compiled = torch.compile(module, backend="aot_eager")
    for seed in (2, 3):
        x = subject.plain(5, 8, seed=seed)
        expected = F.linear(x, subject.reference(subject.plain(4, 8))[1:3])
        subject.same("Inferring(x)(inputs)", module(x), expected, loosely=True)
        subject.same("torch.compile(Inferring(x))(inputs)", compiled(x), expected, loosely=True)
