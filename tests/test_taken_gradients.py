"""A gradient that only autograd holds becomes ``grad`` itself; one that anybody else holds never does: what is kept,
and what a write to it reaches, is as with plain tensors. So it is under every Python, however that counts."""

from __future__ import annotations

# ruff: noqa: ARG004 - signatures are autograd's
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subjects import Clear, Tagged
from torch import nn
from torch.utils.checkpoint import checkpoint

import lamina
from lamina import LoggingTensor, ScaledInt8Tensor

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Kept = list[Any]

WRAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "logging": LoggingTensor,
    "own": Clear,
    "own with context": lambda t: Tagged(t, tag="mine"),
    "logging of own": lambda t: LoggingTensor(Clear(t)),
    "logging of int8": lambda t: LoggingTensor(ScaledInt8Tensor.quantize(t)),
    "int8": ScaledInt8Tensor.quantize,
}
START = torch.tensor([[1.0, -2.0, 127.0], [127.0, 3.0, -5.0]])  # what int8 holds as it is
FACTORS = torch.tensor([[0.5, 1.0, 2.0], [4.0, 8.0, 16.0]])


def loss_of(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return ((p + q) * FACTORS).sum()


def squares_of(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p * p * FACTORS).sum() + (q * FACTORS).sum()


def squares_of_sums(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    total = p + q
    return (total * total).sum()


# What a user may do around a backward. Each gives what was kept meanwhile.


def nothing(p: Any, q: Any, loss: Loss) -> Kept:
    loss(p, q).backward()
    return []


def a_hook_keeps(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(kept.append)
    loss(p, q).backward()
    return kept


def a_hook_detaches(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(lambda gradient: kept.append(gradient.detach()))
    loss(p, q).backward()
    return kept


def a_hook_keeps_and_detaches(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(lambda gradient: kept.extend([gradient, gradient.detach()]))
    loss(p, q).backward()
    return kept


def a_hook_returns_what_it_keeps(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []

    def doubled(gradient: torch.Tensor) -> torch.Tensor:
        kept.append(gradient * 2)
        return kept[-1]  # type: ignore[no-any-return]

    p.register_hook(doubled)
    loss(p, q).backward()
    return kept


def grad_is_kept_when_it_is_there(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_post_accumulate_grad_hook(lambda leaf: kept.append(leaf.grad))
    loss(p, q).backward()
    return kept


def grad_is_taken_away(p: Any, q: Any, loss: Loss) -> Kept:
    """As an optimizer in the backward does. While the hook runs, autograd is at the leaf, and that has no gradient."""
    kept: Kept = []

    def taking(leaf: torch.Tensor) -> None:
        gradient = leaf.grad
        leaf.grad = None
        assert gradient is not None
        kept.append(gradient.detach())
        kept.append(gradient)

    p.register_post_accumulate_grad_hook(taking)
    loss(p, q).backward()
    return kept


def grad_is_given_to_another(p: Any, q: Any, loss: Loss) -> Kept:
    other = p.detach().clone().requires_grad_()
    kept: Kept = [other]

    def giving(leaf: torch.Tensor) -> None:
        other.grad, leaf.grad = leaf.grad, None
        kept.append(other.grad.detach())  # that only C++ holds, but for the call

    p.register_post_accumulate_grad_hook(giving)
    loss(p, q).backward()
    return [*kept[1:], other.grad]


def a_gradient_is_asked_for(p: Any, q: Any, loss: Loss) -> Kept:
    total = loss(p, q)
    asked = torch.autograd.grad(total, [p, q], retain_graph=True)
    total.backward()
    return list(asked)


def a_step_between_keeps_its_gradient(p: Any, q: Any, loss: Loss) -> Kept:
    between = p.view_as(p)
    between.retain_grad()
    loss(between, q).backward()
    return [between.grad]


def a_gradient_is_given(p: Any, q: Any, loss: Loss) -> Kept:
    del q, loss
    given = torch.autograd.grad((p * FACTORS).sum(), p)[0]
    p.backward(given)
    return [given]


def a_gradient_is_given_to_a_view(p: Any, q: Any, loss: Loss) -> Kept:
    del q, loss
    given = torch.autograd.grad((p * FACTORS).sum(), p)[0]
    p.view_as(p).backward(given)
    return [given]


class Keeping(torch.autograd.Function):
    """Does nothing to a tensor, and keeps its gradient."""

    kept: Kept

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        Keeping.kept.append(gradient)
        return gradient


def a_function_keeps_it(p: Any, q: Any, loss: Loss) -> Kept:
    Keeping.kept = []
    loss(Keeping.apply(p), q).backward()  # type: ignore[no-untyped-call]
    return Keeping.kept


def autograds_node_is_hooked_before(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    total, node = loss(p, q), torch.autograd.graph.get_gradient_edge(p).node
    node.register_prehook(lambda gradients: kept.extend([gradients[0], gradients[0].detach()]))
    total.backward()
    return kept


def autograds_node_is_hooked_behind(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    total, node = loss(p, q), torch.autograd.graph.get_gradient_edge(p).node
    node.register_hook(lambda _, gradients: kept.append(gradients[0]))
    total.backward()
    return kept


def several_are_waited_for(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    torch.autograd.graph.register_multi_grad_hook([p, q], kept.extend)
    loss(p, q).backward()
    return kept


def only_one_is_an_input(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(kept.append)
    loss(p, q).backward(inputs=[p])
    return kept


def in_a_thread(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(kept.append)
    total = loss(p, q)
    thread = threading.Thread(target=total.backward)
    thread.start()
    thread.join()
    return kept


def checkpointed(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(kept.append)
    checkpoint(loss, p, q, use_reentrant=False).backward()
    return kept


def checkpointed_by_a_backward_inside(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_post_accumulate_grad_hook(lambda leaf: kept.append(leaf.grad))
    checkpoint(loss, p, q, use_reentrant=True).backward()
    return kept


def the_graph_is_kept(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = []
    p.register_hook(kept.append)
    loss(p, q).backward(create_graph=True)
    return kept


def a_backward_of_the_backward(p: Any, q: Any, loss: Loss) -> Kept:
    kept: Kept = list(torch.autograd.grad(loss(p, q), [p, q], create_graph=True))
    p.register_hook(kept.append)
    (kept[0] * kept[0]).sum().backward()
    return kept


KEEPERS = [
    nothing,
    a_hook_keeps,
    a_hook_detaches,
    a_hook_keeps_and_detaches,
    a_hook_returns_what_it_keeps,
    grad_is_kept_when_it_is_there,
    grad_is_taken_away,
    grad_is_given_to_another,
    a_gradient_is_asked_for,
    a_step_between_keeps_its_gradient,
    a_gradient_is_given,
    a_gradient_is_given_to_a_view,
    a_function_keeps_it,
    autograds_node_is_hooked_before,
    several_are_waited_for,
    only_one_is_an_input,
    in_a_thread,
    checkpointed,
    checkpointed_by_a_backward_inside,
    the_graph_is_kept,
]


def values(tensors: Kept) -> list[Any]:
    plain = [t.detach().to_plain() if isinstance(t, lamina.WrapperTensor) else t for t in tensors]
    return [None if t is None else t.detach().tolist() for t in plain]


def two_backwards(keeper: Any, loss: Loss, wrap: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What was kept, and what gradients there are behind one backward and another."""
    p, q = nn.Parameter(wrap(START.clone())), nn.Parameter(wrap(START * 0 + 1))
    kept = keeper(p, q, loss)
    first = values([*kept, p.grad, q.grad])
    loss(p, q).backward()
    return first, values([p.grad, q.grad])


def reached(keeper: Any, loss: Loss, wrap: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
    """For each tensor that is left: which of them it is, ``I``, and which change, ``+``, when it is written to."""
    p, q = nn.Parameter(wrap(START.clone())), nn.Parameter(wrap(START * 0 + 1))
    left = [t for t in [*keeper(p, q, loss), p.grad, q.grad] if t is not None]
    rows = []
    for tensor in left:
        before = values(left)
        with torch.no_grad():
            tensor.add_(100.0)
        after = values(left)
        rows.append(
            "".join("I" if t is tensor else ".+"[old != new] for t, old, new in zip(left, before, after, strict=True))
        )
    return rows


def agree(keeper: Any, loss: Loss, wrap: str) -> None:
    """Plain tensors share more: torch takes the memory of what a hook detached."""
    assert two_backwards(keeper, loss, WRAPS[wrap]) == two_backwards(keeper, loss, torch.Tensor.clone), keeper.__name__
    mine, plain = reached(keeper, loss, WRAPS[wrap]), reached(keeper, loss, torch.Tensor.clone)
    for row, allowed in zip(mine, plain, strict=True):
        assert all(".+I".index(one) <= ".+I".index(other) for one, other in zip(row, allowed, strict=True)), (
            keeper.__name__,
            mine,
            plain,
        )


@pytest.mark.filterwarnings("ignore:Using backward")  # that create_graph makes a cycle
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("keeper", KEEPERS, ids=lambda keeper: keeper.__name__)
def test_who_keeps_a_gradient_has_what_a_plain_run_has(keeper: Any, wrap: str) -> None:
    agree(keeper, loss_of, wrap)


@pytest.mark.parametrize("wrap", ["logging", "own", "logging of int8"])
def test_and_in_a_backward_of_a_backward(wrap: str) -> None:
    agree(a_backward_of_the_backward, squares_of, wrap)


COMPILED = [
    nothing,
    a_hook_keeps,
    a_hook_keeps_and_detaches,
    a_hook_returns_what_it_keeps,
    grad_is_taken_away,
    a_gradient_is_asked_for,
    autograds_node_is_hooked_before,
    checkpointed,
]


@pytest.mark.parametrize("wrap", ["logging", "own", "logging of int8", "int8"])
def test_and_where_the_loss_is_compiled(wrap: str) -> None:
    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    for keeper in COMPILED:
        agree(keeper, compiled, wrap)


def marks(loss: Loss, wrap: str, *hooks: Any) -> list[Any]:
    """Whether ``grad`` is the gradient that autograd brought to the leaf, and whether the one behind ``hooks`` was. A
    mark tells: torch keeps the object, but a weak reference to it ends with each hook."""
    p, q = nn.Parameter(WRAPS[wrap](START.clone())), torch.ones(2, 3)
    found = []
    p.register_hook(lambda gradient: setattr(gradient, "mark", "brought"))
    for hook in hooks:
        p.register_hook(hook)
    p.register_hook(lambda gradient: found.append(hasattr(gradient, "mark")))
    loss(p, q).backward()
    return [*found, hasattr(p.grad, "mark")]


TAKEN = ["logging", "own", "own with context", "logging of own", "logging of int8"]


@pytest.mark.parametrize("wrap", TAKEN)
def test_a_gradient_that_only_autograd_holds_is_taken(wrap: str) -> None:
    assert marks(loss_of, wrap) == [True, True]
    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    for _ in range(3):  # compiled, from the cache, and once more
        assert marks(compiled, wrap) == [True, True]


@pytest.mark.parametrize("wrap", TAKEN)
def test_one_holder_more_is_enough(wrap: str) -> None:
    """A hook without a frame or a name of its own: only the tuple of its arguments holds the gradient."""
    assert marks(loss_of, wrap, torch.detach) == [False, False]


@pytest.mark.parametrize("wrap", TAKEN)
def test_a_warm_interpreter_counts_as_a_cold_one(wrap: str) -> None:
    """Python rewrites its bytecode as it runs, and may lend references that it counted before."""
    p, q = nn.Parameter(WRAPS[wrap](START.clone())), torch.ones(2, 3)
    same: set[tuple[bool, bool]] = set()
    p.register_hook(lambda gradient: setattr(gradient, "mark", "brought"))

    def taking(leaf: torch.Tensor) -> None:
        gradient = leaf.grad
        leaf.grad = None
        assert gradient is not None
        same.add((hasattr(gradient, "mark"), gradient.detach() is gradient))

    p.register_post_accumulate_grad_hook(taking)
    for _ in range(300):
        loss_of(p, q).backward()
    assert same == {(True, False)}


@pytest.mark.parametrize("wrap", TAKEN)
def test_two_leaves_of_one_gradient_get_two(wrap: str) -> None:
    """Compiled code gives them two wrappers around one tensor, and torch would take both."""
    p, q = (nn.Parameter(WRAPS[wrap](START.clone())) for _ in range(2))
    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        compiled(p, q).backward()
    assert values([p.grad, q.grad]) == [(3 * FACTORS).tolist()] * 2


class Conjugates(lamina.WrapperTensor):
    """Clones into the conjugate, with a conj bit."""

    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


@Conjugates.implements(torch.ops.aten.clone.default)
def _clone(op: Any, self: Any, *, memory_format: Any = None) -> Conjugates:
    return Conjugates(op(self.elem.conj(), memory_format=memory_format).conj())


class Gives(torch.autograd.Function):
    """The identity, whose gradient is what it is told."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, gradient: Callable[[], torch.Tensor]) -> torch.Tensor:
        ctx.gradient = gradient
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:  # type: ignore[override]
        return ctx.gradient(), None


BITS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conj": torch.Tensor.conj,
    "neg": lambda t: torch._neg_view(torch.view_as_real(t)),
    "both": lambda t: torch._neg_view(t.conj()),
}
INSIDE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": lambda t: t,
    "logging": LoggingTensor,
    "own": Clear,
    "own that clones into a conjugate": Conjugates,
}


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("bits", BITS)
def test_a_gradient_keeps_the_values_that_its_math_bits_say(
    bits: str, inside: str, dtype: torch.dtype, shared: bool
) -> None:
    """Taken or copied: a wrapper says what the tensor in it says, and so what it is worth."""
    start = torch.tensor([[1 + 2j, 3 - 1j], [0, -2j]], dtype=dtype)
    wanted = BITS[bits](start)
    held: list[torch.Tensor] = []

    def gradient() -> torch.Tensor:
        inner = INSIDE[inside](BITS[bits](start.clone()))
        held.extend([inner] if shared else [])
        return LoggingTensor(inner)

    p = nn.Parameter(LoggingTensor(INSIDE[inside](wanted.clone())))
    Gives.apply(p, gradient).backward(torch.ones_like(wanted))  # type: ignore[no-untyped-call]
    grad: Any = p.grad
    assert (grad.is_conj(), grad.is_neg()) == (grad.elem.is_conj(), grad.elem.is_neg())
    assert values([grad]) == [wanted.resolve_conj().resolve_neg().tolist()]
    assert all(grad.elem is not inner for inner in held)


class Pair(lamina.WrapperTensor):
    """Two tensors whose sum counts."""

    high: torch.Tensor
    low: torch.Tensor
    fallback = lamina.Fallback.PLAIN

    @classmethod
    def encode(cls, plain: torch.Tensor) -> Pair:
        return cls(plain, torch.zeros_like(plain))

    def decode(self) -> torch.Tensor:
        return self.high + self.low


def _pair_of(op: Any, self: Any, other: Any) -> Pair:
    plain = op(*(t.to_plain() if isinstance(t, Pair) else t for t in (self, other)))
    return Pair(plain / 2, plain / 2)


@Pair.implements(torch.ops.aten.mul.Tensor)
def _product(op: Any, self: Any, other: Any) -> Pair:
    return _pair_of(op, self, other)


@Pair.implements(torch.ops.aten.add.Tensor)
def _sum(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Pair:
    assert alpha == 1
    return _pair_of(op, self, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_and_where_they_hold_several_tensors(backend: str) -> None:
    p, q = (nn.Parameter(Pair.encode(START.clone())) for _ in range(2))
    compiled = torch.compile(squares_of_sums, backend=backend, fullgraph=True)
    for _ in range(3):
        compiled(p, q).backward()
    assert type(p.grad) is Pair
    assert values([p.grad, q.grad]) == [(3 * 4 * START).tolist()] * 2


def test_what_a_hook_behind_the_leaf_was_given_shares_the_memory_of_grad() -> None:
    """As with plain tensors."""
    agree(autograds_node_is_hooked_behind, loss_of, "logging")
