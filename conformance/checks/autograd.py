"""Autograd's view of an instance: Parameters, saved tensors, hooks, ``requires_grad``, ``.data``."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ..check import check
from ..inside import addresses, leaves_of
from ..outcome import MismatchError, NotApplicable
from ..structure import check_structure, same_bits
from ..subject import Kind, Subject

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)


@check("autograd", "isinstance(p, nn.Parameter) or isinstance(p, TheClass) is False")
def parameters_are_of_the_class(subject: Subject) -> None:
    """``nn.Parameter(x)`` is a Parameter and an instance at once, a leaf with the same context; what ops make of it may
    be an instance and is no Parameter. Modules, optimizers and checkpoints ask ``isinstance`` for both.
    """
    for requires_grad in (True, False):
        x, call = subject.new(4, 8), f"nn.Parameter(x, requires_grad={requires_grad})"
        p = nn.Parameter(x, requires_grad=requires_grad)
        if not isinstance(p, nn.Parameter):
            raise MismatchError(f"isinstance({call}, nn.Parameter)", True, False)
        check_structure(subject, call, p, x)
        if p.requires_grad is not requires_grad or not p.is_leaf:
            raise MismatchError(call, f"a leaf with requires_grad={requires_grad}", f"requires_grad={p.requires_grad}")
        for name, made in (("detach()", p.detach()), ("clone()", p.clone())):
            if isinstance(made, nn.Parameter):
                raise MismatchError(f"isinstance({call}.{name}, nn.Parameter)", False, True)
            if not subject.is_instance(made) and name == "detach()":
                raise MismatchError(f"{call}.{name}", subject.cls, type(made))
    module = nn.Module()
    module.weight = nn.Parameter(subject.new(4, 8))
    if [name for name, _ in module.named_parameters()] != ["weight"]:
        raise MismatchError("module.weight = nn.Parameter(x); its parameters", ["weight"], [])


def _applied(function: Any, *operands: Any) -> Any:
    return function.apply(*operands)


class _Saving(torch.autograd.Function):
    """Twice ``plain``; what it saved of ``x`` goes to ``seen``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, plain: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        ctx.save_for_backward(x, x.detach())
        ctx.seen = seen
        return plain * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        ctx.seen.extend(ctx.saved_tensors)
        return None, gradient * 2, None


class _SavingResult(torch.autograd.Function):
    """A copy of ``x``, which it saves: torch saves another view of a result, to avoid a cycle."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        result = x.clone()
        ctx.save_for_backward(result)
        ctx.seen = seen
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.seen.extend(ctx.saved_tensors)
        return gradient, None


@check("autograd", "ctx.saved_tensors gives plain tensors")
def saved_tensors_keep_class_and_context(subject: Subject) -> None:
    """What ``save_for_backward`` took, the backward gets: the class, its context, the same inner tensors."""
    x, seen = subject.new(4, 8, grad=True), list[Any]()
    names: tuple[str, ...] = "an input", "a detached input"
    plain = subject.plain(4, 8).requires_grad_()
    _applied(_Saving, x, plain, seen).sum().backward()
    if subject.is_instance(x.clone()):
        names += ("a result",)
        _applied(_SavingResult, x, seen).sum().backward()
    for call, got in zip(names, seen, strict=True):
        check_structure(subject, f"ctx.saved_tensors of {call}", got, x)
        if not same_bits(got, x):
            raise MismatchError(f"ctx.saved_tensors of {call}", "the same inner tensors", got)


@check("autograd", "ops inside hooks give plain tensors", kinds=VALUED)
def hooks_see_the_class(subject: Subject) -> None:
    """A hook on a leaf sees the gradient as the leaf gets it; a post-accumulate hook sees the leaf; and an op on the
    leaf gives in there what it gives outside.
    """
    x, other = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1)
    seen: list[Any] = []

    def on_gradient(gradient: torch.Tensor) -> None:
        seen.append(gradient)
        seen.append(x.detach().clone())

    x.register_hook(on_gradient)
    x.register_post_accumulate_grad_hook(seen.append)
    (x * other).sum().backward()
    gradient, inside, leaf = seen
    if leaf is not x:
        raise MismatchError("x.register_post_accumulate_grad_hook(hook): what hook gets", "x itself", leaf)
    if type(gradient) is not type(x.grad):
        raise MismatchError("x.register_hook(hook): type of what hook gets", type(x.grad), type(gradient))
    if type(inside) is not type(x.detach().clone()):
        raise MismatchError("x.detach().clone() in a hook", type(x.detach().clone()), type(inside))
    subject.same("x.register_hook(hook): what hook gets", gradient, other, loosely=True)
    x = subject.new(4, 8, grad=True)
    x.register_hook(lambda gradient: gradient * 2)
    (x * other).sum().backward()
    subject.same("x.register_hook(lambda g: g * 2); x.grad", x.grad, other * 2, loosely=True)


@check("autograd", "requires_grad_() on an instance has no effect, or lands on an inner tensor", kinds=VALUED)
def requires_grad_is_that_of_the_instance(subject: Subject) -> None:
    """The instance is autograd's leaf: ``requires_grad_()`` returns it and sets it, inner tensors never require grad,
    and the gradient arrives at the instance.
    """
    x = subject.new(4, 8)
    if x.requires_grad_() is not x or not x.requires_grad or not x.is_leaf:
        raise MismatchError("x.requires_grad_()", "x itself, a leaf that requires grad", x.requires_grad)
    result = (x * 2).sum()
    if any(leaf.requires_grad for leaf in leaves_of(x)):
        raise MismatchError("x.requires_grad_(); requires_grad of its inner tensors", False, True)
    if not result.requires_grad:
        raise MismatchError("x.requires_grad_(); (x * 2).sum().requires_grad", True, False)
    result.backward()
    subject.same("x.requires_grad_(); (x * 2).sum().backward(); x.grad", x.grad, torch.full((4, 8), 2.0), loosely=True)
    if x.requires_grad_(False).requires_grad or (x * 2).requires_grad:
        raise MismatchError("x.requires_grad_(False); (x * 2).requires_grad", False, True)
    x.requires_grad = True
    if not x.requires_grad or not (x * 2).requires_grad:
        raise MismatchError("x.requires_grad = True; (x * 2).requires_grad", True, False)


@check("autograd", "retain_grad() has no effect", kinds=VALUED)
def retained_gradients_arrive(subject: Subject) -> None:
    """``retain_grad()`` on what an op made of a leaf: the gradient is there after the backward."""
    x, other = subject.new(4, 8, grad=True), subject.plain(4, 8, seed=1)
    middle = x.clone()
    middle.retain_grad()
    (middle * other).sum().backward()
    if middle.grad is None:
        raise MismatchError("y = x.clone(); y.retain_grad(); (y * t).sum().backward(); y.grad", "a gradient", None)
    subject.same("y = x.clone(); y.retain_grad(); (y * t).sum().backward(); y.grad", middle.grad, other, loosely=True)


@check("autograd", "p.data gives a plain tensor, or a copy")
def data_reads_an_instance_on_the_same_memory(subject: Subject) -> None:
    """``p.data`` is an instance with the same context, without ``requires_grad``, and its inner tensors are on the
    memory of those of ``p``."""
    p = nn.Parameter(subject.new(4, 8))
    data = p.data
    check_structure(subject, "p.data", data, p)
    if data.requires_grad:
        raise MismatchError("p.data.requires_grad", False, True)
    if subject.kind is Kind.FAKE:
        return
    if any(leaf.is_mkldnn for leaf in leaves_of(p)):
        raise NotApplicable("an inner tensor of a kernel's layout has no address")
    if addresses(data) != addresses(p):
        raise MismatchError("addresses of the inner tensors of p.data", "those of p", "others")


@check("autograd", "p.data = w is ignored, and the old values stay", kinds=VALUED)
def data_takes_an_instance(subject: Subject) -> None:
    """``p.data = other`` of the same class gives ``p`` the values of ``other``; ``p`` stays the Parameter it was."""
    p, other = nn.Parameter(subject.new(4, 8)), subject.new(4, 8, seed=1)
    p.data = other
    call = "p.data = other; p"
    check_structure(subject, call, p, other)
    subject.same(call, p, subject.values(other))
    if not (isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf):
        raise MismatchError(call, "a Parameter, a leaf that requires grad", p)
    subject.same("p.data = other; p.clone()", p.clone(), subject.values(other))


@check("autograd", "p.data = plain changes nothing, or makes an instance of mixed parts", kinds=VALUED)
def data_refuses_another_class(subject: Subject) -> None:
    """``p.data = plain`` raises, and the error says to use ``swap_tensors`` or ``copy_``; or ``p`` has the new values
    indeed. To take the metadata of one and keep the values of the other is silently wrong.
    """
    p, plain = nn.Parameter(subject.new(4, 8)), subject.plain(4, 8, seed=1)
    before = subject.values(p).clone()
    try:
        p.data = plain
    except Exception as error:  # noqa: BLE001 - its text is what counts
        if not any(name in str(error) for name in ("swap_tensors", "copy_")):
            text = "an error that names swap_tensors or copy_"
            raise MismatchError("p.data = plain", text, error) from None
        subject.same("p after p.data = plain, which raised", p, before)
        return
    subject.same("p.data = plain; p", p, plain)


@check("autograd", "frozen weights require grad after load_state_dict, to() or a copy")
def requires_grad_survives_reloading(subject: Subject) -> None:
    """To load, copy and move keeps ``requires_grad`` of a Parameter as it was, frozen or not."""
    for requires_grad in (False, True):
        for call, reload in _RELOADS.items():
            module = nn.Module()
            module.weight = nn.Parameter(subject.new(4, 8), requires_grad=requires_grad)
            other = nn.Parameter(subject.new(4, 8, seed=1), requires_grad=not requires_grad)
            weight = reload(module, other).weight
            if weight.requires_grad is not requires_grad or not isinstance(weight, nn.Parameter):
                text = f"weight.requires_grad = {requires_grad}; {call}; weight.requires_grad"
                raise MismatchError(text, requires_grad, weight.requires_grad)


def _loaded(module: Any, other: nn.Parameter, assign: bool = False) -> Any:
    module.load_state_dict({"weight": other}, assign=assign)
    return module


def _copied(module: Any, other: nn.Parameter) -> Any:
    with torch.no_grad():
        module.weight.copy_(other)
    return module


_RELOADS: dict[str, Any] = {
    "load_state_dict(sd)": _loaded,
    "load_state_dict(sd, assign=True)": lambda module, other: _loaded(module, other, assign=True),
    "copy_(other)": _copied,
    "module.to(device)": lambda module, _: module.to(module.weight.device),
    "module.float()": lambda module, _: module.float(),
    "deepcopy(module)": lambda module, _: copy.deepcopy(module),
}
