"""The type of every gradient, saved tensors, hooks, checkpointing, higher order, and the cuts that are refused."""

from __future__ import annotations

# ruff: noqa: ARG005, PLW0108 - signatures are those of schemas and hooks; each call is written out
import gc
import weakref
from typing import Any

import pytest
import torch
from subjects import FLOATING, Clear, Doubled, Scaled, Sum, Tagged, nest, peeled
from torch.utils.checkpoint import checkpoint

import lamina
from lamina import GradientCutError, WrapperTensor

F = torch.nn.functional
SAME = [Clear, Tagged]
PLAIN = [Doubled, Scaled]


def leaf(cls: Any, values: torch.Tensor) -> Any:
    return cls.from_plain(values).detach().requires_grad_()


def plain_of(value: Any) -> torch.Tensor:
    return value.to_plain() if isinstance(value, WrapperTensor) else value


# a wrapped leaf gets its class's choice


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_a_wrapped_leaf_gets_the_gradient_its_class_chooses(dtype: torch.dtype) -> None:
    for cls in (Clear, Tagged, Doubled):
        plain = torch.randn(3, 3).to(dtype).requires_grad_()
        w = leaf(cls, plain.detach())
        for x in (plain, w):
            (x @ x + x).abs().sum().backward()
        assert type(w.grad) is (torch.Tensor if cls is Doubled else cls)
        assert w.grad.dtype is dtype
        assert torch.allclose(plain_of(w.grad), plain.grad, atol=1e-2, rtol=1e-2)


EXITS: dict[str, Any] = {
    "add": lambda w: w + 1,
    "mul": lambda w: w * w,
    "linear": lambda w: F.linear(torch.ones(2, 4), w),
    "linear bias": lambda w: F.linear(torch.ones(2, 4), w, torch.ones(4)),
    "matmul": lambda w: w @ torch.ones(4, 2),
    "rmatmul": lambda w: torch.ones(2, 4) @ w,
    "t": lambda w: w.t(),
    "view": lambda w: w.view(-1),
    "slice": lambda w: w[1:],
    "cat": lambda w: torch.cat([w, torch.ones(1, 4)]),
    "clone": lambda w: w.clone(),
    "embedding": lambda w: F.embedding(torch.tensor([0, 1]), w),
    "layer_norm": lambda w: F.layer_norm(torch.randn(2, 4), (4,), w[0]),
    "conv": lambda w: F.conv1d(torch.ones(1, 4, 5), w.unsqueeze(-1)),
    "to_plain": lambda w: plain_of(w),
    "to double": lambda w: w.double(),
    "softmax": lambda w: w.softmax(-1),
    "expand": lambda w: w[:1].expand(4, 4),
    "where": lambda w: torch.where(torch.eye(4).bool(), w, torch.ones(4, 4)),
    "plain first": lambda w: torch.ones(4, 4) - w,
    "foreach": lambda w: torch._foreach_add([w, torch.ones(4, 4)], 1)[0],
    "sum": lambda w: w.sum(),
}


@pytest.mark.parametrize("call", EXITS)
def test_the_choice_holds_whatever_op_the_leaf_leaves_by(call: str) -> None:
    for cls in (*SAME, *PLAIN):
        w = leaf(cls, torch.randn(4, 4))
        plain = plain_of(w.detach()).requires_grad_()
        torch.manual_seed(1)
        EXITS[call](w).sum().backward()
        torch.manual_seed(1)
        EXITS[call](plain).sum().backward()
        assert type(w.grad) is (torch.Tensor if cls in PLAIN else cls), cls
        assert torch.allclose(plain_of(w.grad), plain.grad, atol=1e-5), cls


def test_a_decoding_class_that_chooses_its_own_type_gets_it() -> None:
    w = leaf(Sum, torch.ones(4, 4))
    (w * 2).sum().backward()
    assert type(w.grad) is Sum
    assert torch.allclose(plain_of(w.grad), torch.full((4, 4), 2.0))


def test_known_limit_a_plain_gradient_given_to_backward_stays_plain() -> None:
    """No wrapper meets the leaf's gradient on its way; `wrap_parameters` puts a hook there that dresses it."""
    for cls in SAME:
        w = leaf(cls, torch.ones(3, 4))
        F.linear(torch.ones(2, 4), w).backward(torch.ones(2, 3))
        assert type(w.grad) is torch.Tensor
        assert torch.equal(w.grad, torch.full((3, 4), 2.0))


def test_plain_outputs_change_no_type() -> None:
    for cls in (*SAME, *PLAIN):
        w, x = leaf(cls, torch.ones(3, 4)), torch.ones(2, 4, requires_grad=True)
        out = F.linear(x, w)
        out = out.to_plain() if isinstance(out, WrapperTensor) else out
        assert type(out) is torch.Tensor
        out.square().sum().backward()
        assert type(w.grad) is (torch.Tensor if cls in PLAIN else cls), cls
        assert type(x.grad) is torch.Tensor


@pytest.mark.parametrize("call", EXITS)
def test_autograd_grad_gives_the_same_type(call: str) -> None:
    for cls in (Clear, Doubled):
        w = leaf(cls, torch.randn(4, 4))
        (gradient,) = torch.autograd.grad(EXITS[call](w).sum(), w)
        assert type(gradient) is (torch.Tensor if cls is Doubled else cls)


def test_accumulation_clipping_and_zero_grad() -> None:
    for cls in (Clear, Doubled, Scaled):
        p = torch.nn.Parameter(cls.from_plain(torch.ones(2, 2)))
        for _ in range(2):
            (p * 3).sum().backward()
        assert torch.allclose(plain_of(p.grad), torch.full((2, 2), 6.0), atol=0.1)
        torch.nn.utils.clip_grad_norm_([p], 1.0)
        assert float(plain_of(p.grad).norm()) == pytest.approx(1, abs=1e-3)
        torch.nn.utils.clip_grad_value_([p], 0.1)
        assert float(plain_of(p.grad).max()) == pytest.approx(0.1, abs=1e-3)
        optimizer = torch.optim.SGD([p], lr=0.1)
        optimizer.zero_grad(set_to_none=False)
        assert float(plain_of(p.grad).abs().sum()) == 0
        optimizer.zero_grad()
        assert p.grad is None


# a plain leaf beside a wrapped one gets a plain gradient


BESIDE: dict[str, Any] = {
    "bias": (lambda w, b: F.linear(torch.ones(2, 4), w, b), (4,)),
    "add": (lambda w, b: w + b, (4, 4)),
    "radd": (lambda w, b: b + w, (4, 4)),
    "add broadcast": (lambda w, b: w + b, (4,)),
    "mul": (lambda w, b: b * w, (4, 4)),
    "mm": (lambda w, b: b @ w, (4, 4)),
    "rmm": (lambda w, b: w @ b, (4, 4)),
    "input": (lambda w, b: F.linear(b, w), (2, 4)),
    "addmm": (lambda w, b: torch.addmm(b, torch.ones(4, 4), w), (4, 4)),
    "addmm keyword": (lambda w, b: torch.addmm(input=b, mat1=torch.ones(4, 4), mat2=w), (4, 4)),
    "cat": (lambda w, b: torch.cat([w, b]), (4, 4)),
    "stack": (lambda w, b: torch.stack([b, w]), (4, 4)),
    "where": (lambda w, b: torch.where(torch.eye(4).bool(), b, w), (4, 4)),
    "foreach": (lambda w, b: torch._foreach_add([w], [b])[0], (4, 4)),
    "out of place copy": (lambda w, b: w.clone().copy_(b), (4, 4)),
    "add_": (lambda w, b: w.clone().add_(b), (4, 4)),
    "plain add_": (lambda w, b: (b.clone() + 0).add_(w), (4, 4)),
    "index_put_": (lambda w, b: w.clone().index_put_((torch.tensor([0]),), b), (1, 4)),
    "layer_norm": (lambda w, b: F.layer_norm(torch.randn(2, 4), (4,), w[0], b), (4,)),
    "baddbmm": (lambda w, b: torch.baddbmm(b, torch.ones(1, 4, 4), w[None]), (1, 4, 4)),
    "einsum": (lambda w, b: torch.einsum("ij,jk->ik", b, w), (4, 4)),
    "lerp": (lambda w, b: torch.lerp(w, b, 0.5), (4, 4)),
    "attention": (lambda w, b: F.scaled_dot_product_attention(w[None], b[None], w[None]), (4, 4)),
    "cross_entropy": (lambda w, b: F.cross_entropy(b @ w, torch.tensor([0, 1, 2, 3])), (4, 4)),
    "mse": (lambda w, b: F.mse_loss(w, b), (4, 4)),
}


@pytest.mark.parametrize("call", BESIDE)
def test_a_plain_leaf_gets_a_plain_gradient(call: str) -> None:
    function, shape = BESIDE[call]
    for cls in (*SAME, *PLAIN):
        w, b = leaf(cls, torch.randn(4, 4)), torch.randn(shape, requires_grad=True)
        plain_w, plain_b = plain_of(w.detach()).requires_grad_(), b.detach().clone().requires_grad_()
        torch.manual_seed(1)
        function(w, b).sum().backward()
        torch.manual_seed(1)
        function(plain_w, plain_b).sum().backward()
        assert type(b.grad) is torch.Tensor, cls
        assert torch.allclose(b.grad, plain_b.grad, atol=1e-5), cls
        if plain_w.grad is not None:
            assert type(w.grad) is (torch.Tensor if cls in PLAIN else cls), cls
            assert torch.allclose(plain_of(w.grad), plain_w.grad, atol=1e-5), cls


@pytest.mark.parametrize("call", BESIDE)
def test_a_plain_leaf_upstream_of_a_wrapped_one_gets_a_plain_gradient(call: str) -> None:
    """An embedding before a wrapped linear: the tensor that meets the wrapper is no leaf."""
    function, shape = BESIDE[call]
    for cls in (Clear, Doubled):
        w, b = leaf(cls, torch.randn(4, 4)), torch.randn(shape, requires_grad=True)
        function(w, torch.relu(b * 2 + 1)).sum().backward()
        assert type(b.grad) is torch.Tensor, cls


@pytest.mark.parametrize("call", BESIDE)
def test_a_frozen_wrapper_gives_a_plain_leaf_a_plain_gradient(call: str) -> None:
    function, shape = BESIDE[call]
    for cls in (*SAME, *PLAIN):
        w, b = cls.from_plain(torch.randn(4, 4)), torch.randn(shape, requires_grad=True)
        function(w, b).sum().backward()
        assert type(b.grad) is torch.Tensor, cls


def test_grad_of_a_plain_leaf_asked_for_by_autograd_grad_is_plain() -> None:
    w, b = leaf(Clear, torch.randn(4, 4)), torch.randn(4, requires_grad=True)
    hidden = torch.relu(b)
    gradients = torch.autograd.grad(F.linear(hidden, w).sum(), [b, hidden, w])
    assert [type(g) for g in gradients] == [torch.Tensor, torch.Tensor, Clear]


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(7, 4), torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    )


@pytest.mark.parametrize("wrapped", [["1.weight"], ["4.weight"], ["0.weight"], ["2.bias"], ["1.weight", "4.bias"]])
@pytest.mark.parametrize("cls", [Clear, Doubled, Tagged])
def test_a_partly_wrapped_model_trains_as_the_plain_one(cls: Any, wrapped: list[str]) -> None:
    plain, mixed = model(), model()
    for name in wrapped:
        module, attribute = name.split(".")
        old = getattr(mixed[int(module)], attribute)
        setattr(mixed[int(module)], attribute, torch.nn.Parameter(cls.from_plain(old.detach())))
    tokens = torch.tensor([[0, 1, 2], [3, 4, 6]])
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (plain, mixed)]
    for _ in range(3):
        for m, optimizer in zip((plain, mixed), optimizers, strict=True):
            optimizer.zero_grad()
            m(tokens).square().mean().backward()
            for p in m.parameters():
                assert type(p.grad) is (cls if isinstance(p, cls) and cls is not Doubled else torch.Tensor)
            optimizer.step()
    for p, q in zip(plain.parameters(), mixed.parameters(), strict=True):
        assert torch.allclose(p, plain_of(q.detach()), atol=1e-5)


def test_known_limit_one_class_at_two_depths_gets_the_deeper_gradient() -> None:
    """The values are right; only the gradient of the leaf that is wrapped less often is one level too deep."""
    one, two, plain = nest(Clear, torch.ones(2), 1), nest(Clear, torch.ones(2), 2), torch.ones(2)
    for t in (one, two, plain):
        t.requires_grad_()
    (one * two * plain).sum().backward()
    assert type(plain.grad) is torch.Tensor
    for w in (one, two):
        assert type(w.grad) is Clear
        assert type(w.grad.elem) is Clear
        assert type(w.grad.elem.elem) is torch.Tensor
        assert w.grad.elem.elem.tolist() == [1, 1]


def test_unrelated_classes_get_their_own_types() -> None:
    for first, second in ((Clear, Tagged), (Clear, Doubled), (Doubled, Tagged)):
        a, b = leaf(first, torch.ones(2)), leaf(second, torch.ones(2))
        (a * b).sum().backward()
        for w, cls in ((a, first), (b, second)):
            assert type(w.grad) is (torch.Tensor if cls is Doubled else cls), (first, second)


def test_the_hook_on_a_plain_tensor_is_registered_once_and_kept_by_no_cycle() -> None:
    w, b = Clear(torch.ones(2)), torch.ones(2, requires_grad=True)
    for _ in range(5):
        (w * b).sum().backward()
    assert len(b._backward_hooks) == 1
    ref = weakref.ref(b)
    gc.disable()
    try:
        del b
        assert ref() is None
    finally:
        gc.enable()


def test_a_users_hook_beside_ours_sees_a_plain_gradient() -> None:
    seen: list[type] = []
    w, b = Clear(torch.ones(2)), torch.ones(2, requires_grad=True)
    b.register_hook(lambda g: seen.append(type(g)))
    (w * b).sum().backward()
    b.grad = None
    b.register_hook(lambda g: seen.append(type(g)))
    b.register_post_accumulate_grad_hook(lambda p: seen.append(type(p.grad)))
    (w * b).sum().backward()
    assert set(seen[1:]) == {torch.Tensor}
    assert type(b.grad) is torch.Tensor


def test_a_retained_gradient_of_a_plain_intermediate_is_plain() -> None:
    w, b = Clear(torch.ones(2)), torch.ones(2, requires_grad=True)
    middle = b * 2
    middle.retain_grad()
    (w * middle).sum().backward()
    assert type(middle.grad) is torch.Tensor


def test_a_plain_leaf_that_met_no_grad_first() -> None:
    w, b = Clear(torch.ones(2)), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        w * b
    assert not b._backward_hooks
    (w * b).sum().backward()
    assert type(b.grad) is torch.Tensor


def test_a_parameter_with_our_hook_can_be_deep_copied_and_pickled() -> None:
    import copy
    import io

    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    layer(torch.ones(1, 2)).sum().backward()
    twin = copy.deepcopy(layer)
    twin(torch.ones(1, 2)).sum().backward()
    assert type(twin.bias.grad) is torch.Tensor
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    assert type(loaded["weight"]) is Clear


# saved tensors, hooks, checkpointing


def test_saved_tensors_keep_their_class_and_context() -> None:
    seen: list[Any] = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.detach() * x.detach()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append((type(x), x.tag, x.label, peeled(x).tolist(), type(gradients[0])))
            return gradients[0] * 2 * x

    w = Tagged(torch.tensor([2.0, 3.0]), 7, "here").requires_grad_()
    Square.apply(w).sum().backward()
    assert seen == [(Tagged, 7, "here", [2, 3], Tagged)]
    assert peeled(w.grad).tolist() == [4, 6]


def test_saved_outputs_keep_their_class() -> None:
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x.detach().exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            assert type(ctx.saved_tensors[0]) is Clear
            return gradients[0] * ctx.saved_tensors[0]

    w = Clear(torch.zeros(2)).requires_grad_()
    Exp.apply(w).sum().backward()
    assert peeled(w.grad).tolist() == [1, 1]


def test_pack_hooks_see_the_class_and_give_it_back() -> None:
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(type(t))
        return t.to("cpu", copy=True)

    w = Tagged(torch.tensor([2.0]), 5).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = w * w
    out.sum().backward()
    assert packed == [Tagged, Tagged]
    assert (type(w.grad), w.grad.tag, peeled(w.grad).tolist()) == (Tagged, 5, [4])
    w.grad = None
    with torch.autograd.graph.save_on_cpu():
        out = w * w
    out.sum().backward()
    assert (type(w.grad), peeled(w.grad).tolist()) == (Tagged, [4])


@pytest.mark.parametrize("cls", SAME)
def test_a_hook_on_a_wrapped_gradient_sees_a_wrapper(cls: Any) -> None:
    seen: list[Any] = []
    w = cls(torch.ones(2)).requires_grad_()
    middle = w * 2
    for t in (w, middle):
        t.register_hook(lambda g: seen.append(type(g)) or g * 2)
    middle.sum().backward()
    assert seen == [cls, cls]
    assert peeled(w.grad).tolist() == [8, 8]


def test_module_hooks_see_wrappers() -> None:
    seen: list[Any] = []
    layer = torch.nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, args, out: seen.append(type(out)))
    layer.register_full_backward_hook(lambda m, gi, go: seen.extend([type(gi[0]), type(go[0])]))
    layer(Clear(torch.ones(1, 2)).requires_grad_()).sum().backward()
    assert seen[0] is Clear
    assert set(seen[1:]) <= {Clear, torch.Tensor}


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Sum])
def test_checkpointing_recomputes_with_the_class(cls: Any, reentrant: bool) -> None:
    seen: list[Any] = []

    def block(x: Any, w: Any) -> Any:
        seen.append((w, type(w)))  # held, so that autograd copies the gradient of what was detached
        return torch.tanh(F.linear(x, w))

    weights = [leaf(cls, torch.randn(4, 4)) for _ in range(2)]
    plain = [plain_of(w.detach()).requires_grad_() for w in weights]
    x = torch.randn(2, 4, requires_grad=True)
    out = checkpoint(
        block, checkpoint(block, x, weights[0], use_reentrant=reentrant), weights[1], use_reentrant=reentrant
    )
    gradient = torch.ones_like(out)
    out.backward(gradient)
    assert len(seen) == 4
    assert {s[1] for s in seen} == {cls}
    y = x.detach().clone().requires_grad_()
    block(block(y, plain[0]), plain[1]).sum().backward()
    assert type(x.grad) is torch.Tensor
    assert torch.allclose(x.grad, y.grad, atol=1e-5)
    for w, p in zip(weights, plain, strict=True):
        assert type(w.grad) is (torch.Tensor if cls is Doubled else cls)
        assert torch.allclose(plain_of(w.grad), p.grad, atol=1e-5)


# higher order


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled])
def test_double_backward(cls: Any) -> None:
    plain = torch.tensor([2.0, 3.0], requires_grad=True)
    w, results = leaf(cls, plain.detach()), []
    for x in (plain, w):
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        second.sum().backward()
        results.append([plain_of(t.detach()).tolist() for t in (first, second, x.grad)])
    assert results[0] == results[1] == [[12, 27], [12, 18], [6, 6]]


@pytest.mark.parametrize("cls", [Clear, Doubled])
def test_double_backward_beside_a_plain_leaf(cls: Any) -> None:
    results = []
    for make in (lambda t: t.clone().requires_grad_(), lambda t: leaf(cls, t)):
        w, x = make(torch.randn(3, 3, generator=torch.Generator().manual_seed(0))), torch.ones(2, 3, requires_grad=True)
        out = torch.tanh(F.linear(x, w))
        (gx,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        assert type(gx) is torch.Tensor
        gx.square().sum().backward()
        assert type(x.grad) is torch.Tensor
        results.append((plain_of(w.grad), x.grad))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_gradcheck_through_both_conversions() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    for cls in (Clear, Doubled, Tagged):
        assert torch.autograd.gradcheck(
            lambda t, c=cls: (c.from_plain(t) * 2).to_plain() if c is not Doubled else (c.from_plain(t).to_plain() * 2),
            x,
        )
        assert torch.autograd.gradgradcheck(lambda t, c=cls: c.from_plain(t).to_plain() ** 3, x)


# cuts that are refused


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_wrapping_a_tensor_that_requires_grad_is_refused(dtype: torch.dtype, mode: Any) -> None:
    source = torch.ones(2, dtype=dtype, requires_grad=True)
    for make in (
        lambda t: Clear(t),
        lambda t: Clear(elem=t),
        lambda t: Tagged(t, 3),
        lambda t: Scaled(t.detach(), t),
        lambda t: Sum((t.detach(), t)),
        lambda t: Sum((t.detach(),), t),
        lambda t: Sum((t.detach(),), bias=t),
        lambda t: Clear(torch.nn.Parameter(t.detach())),
        lambda t: Clear(leaf(Clear, t.detach())),
    ):
        with mode(), pytest.raises(GradientCutError, match=r"requires grad as '(elem|scale|parts|bias)'.*from_plain"):
            make(source)
    with pytest.raises(GradientCutError, match=r"requires grad.*from_plain.*detach"):
        Clear(source * 2)


def test_integers_and_detached_tensors_are_held_as_they_are() -> None:
    for inner in (torch.ones(2, requires_grad=True).detach(), torch.ones(2, dtype=torch.int8)):
        assert Clear(inner).elem is inner


def test_an_inner_tensor_that_was_set_to_require_grad_later_does_not_leak() -> None:
    inner = torch.ones(2)
    w = Clear(inner)
    inner.requires_grad_()
    out = w * 2
    assert out.grad_fn is None
    assert not out.elem.requires_grad, "a result must never hold a graph of its own below the wrapper"


def test_a_wrapper_that_requires_grad_leaves_its_inner_tensor_alone() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    assert w.is_leaf
    assert not w.elem.requires_grad
    out = w * 2
    assert not out.elem.requires_grad
    assert out.elem.grad_fn is None
    out.sum().backward()
    assert w.elem.grad is None


def test_results_of_views_detach_and_in_place_ops_hold_no_graph_below() -> None:
    w, b = Clear(torch.ones(2, 2)).requires_grad_(), torch.ones(2, requires_grad=True)
    for out in (w + b, w.t(), w.clone().add_(b), torch.cat([w, b[None]]), w.detach(), b + w):
        assert not peeled(out).requires_grad


# no cycles


def test_a_wrapper_is_freed_without_the_collector() -> None:
    for cls in (Clear, Tagged, Doubled, Scaled, Sum):
        gc.collect()
        gc.disable()
        try:
            w = leaf(cls, torch.ones(2, 2))
            out = (w * 2).sum()
            out.backward()
            w.detach().t().to_plain()
            refs = [weakref.ref(w), weakref.ref(out)]
            inner = weakref.ref(next(getattr(w, n) for n in w.__tensor_flatten__()[0]))
            del w, out
            assert [r() for r in refs] == [None, None], cls
            assert inner() is None, cls
        finally:
            gc.enable()


def test_views_and_graphs_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        w = Clear(torch.ones(4, 4)).requires_grad_()
        view = w.t()[1:]
        loss = F.linear(torch.ones(2, 4, requires_grad=True), w).sum() + view.sum()
        refs = [weakref.ref(t) for t in (w, view, loss)]
        del w, view, loss
        assert [r() for r in refs] == [None] * 3
    finally:
        gc.enable()


# functional transforms: supported, or a clear error


def _is_right_or_an_error(call: Any, expected: torch.Tensor) -> None:
    try:
        out = call()
    except Exception as error:  # noqa: BLE001 - its text is looked at
        assert len(str(error)) > 20  # noqa: PT017
        return
    assert isinstance(out, torch.Tensor)
    while isinstance(out, WrapperTensor):
        out = out.to_plain()
    assert torch.allclose(out, expected, atol=1e-5)


TRANSFORMS: dict[str, Any] = {
    "grad": lambda x: torch.func.grad(lambda t: (t**2).sum())(x),
    "grad of linear": lambda x: torch.func.grad(lambda t: F.linear(torch.ones(2, 3), t).sum())(x),
    "grad of grad": lambda x: torch.func.grad(lambda s: torch.func.grad(lambda t: (t**3).sum())(s).sum())(x),
    "vjp": lambda x: torch.func.vjp(lambda t: t * 2, x)[1](torch.ones(3, 3))[0],
    "jacrev": lambda x: torch.func.jacrev(lambda t: t * 2)(x),
    "jacfwd": lambda x: torch.func.jacfwd(lambda t: t * 2)(x),
    "jvp": lambda x: torch.func.jvp(lambda t: t * 2, (x,), (torch.ones(3, 3),))[1],
    "hessian": lambda x: torch.func.hessian(lambda t: (t**2).sum())(x),
    "vmap": lambda x: torch.func.vmap(lambda t: t * 2 + 1)(x),
    "vmap closure": lambda x: torch.func.vmap(lambda t: t @ x)(torch.eye(3)),
    "vmap grad": lambda x: torch.func.vmap(torch.func.grad(lambda t: (t**2).sum()))(x),
    "functionalize": lambda x: torch.func.functionalize(lambda t: t.clone().add_(1))(x),
    "functional jacobian": lambda x: torch.autograd.functional.jacobian(lambda t: t * 2, x),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_functional_transform_is_right_or_a_clear_error(transform: str) -> None:
    plain = torch.randn(3, 3)
    expected = TRANSFORMS[transform](plain)
    for w in (Clear(plain.clone()), nest(Clear, plain.clone(), 2), Doubled.from_plain(plain)):
        _is_right_or_an_error(lambda w=w: TRANSFORMS[transform](w), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_known_limit_linearize_folds_the_empty_outer_storage() -> None:
    """Torch's constant folding reads memory that a wrapper doesn't have. `torch.func.jvp` is right."""
    plain, ones = torch.randn(3, 3), torch.ones(3, 3)
    _, linear = torch.func.linearize(lambda t: t * 2, Clear(plain))
    assert not torch.allclose(plain_of(linear(ones)), torch.full((3, 3), 2.0))
    _, tangent = torch.func.jvp(lambda t: t * 2, (Clear(plain),), (ones,))
    assert torch.equal(plain_of(tangent), torch.full((3, 3), 2.0))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode_is_right_or_a_clear_error() -> None:
    import torch.autograd.forward_ad as fwd

    plain, tangent = torch.randn(3), torch.randn(3)

    def run(make: Any, make_tangent: Any) -> Any:
        with fwd.dual_level():
            dual = fwd.make_dual(make(plain), make_tangent(tangent))
            return fwd.unpack_dual(dual * dual + 1).tangent.clone()

    expected = run(torch.clone, torch.clone)
    for make in (Clear, Doubled.from_plain):
        for make_tangent in (torch.clone, make):
            _is_right_or_an_error(lambda a=make, b=make_tangent: run(a, b), expected)


def test_a_plain_leaf_that_meets_a_rule_gets_a_plain_gradient() -> None:
    for key in (torch.ops.aten.mul.Tensor, lamina.Kind.POINTWISE):

        class Ruled(WrapperTensor):
            elem: torch.Tensor

        def scale(op: Any, self: Any, other: Any) -> Any:
            left, right = (t.elem if isinstance(t, Ruled) else t for t in (self, other))
            return Ruled(op(left, right))

        def scale_any(op: Any, args: Any, kwargs: Any) -> Any:
            return scale(op, *args)

        Ruled.implements(key)(scale if key is torch.ops.aten.mul.Tensor else scale_any)
        wrapped, plain = Ruled(torch.ones(3)).requires_grad_(), torch.ones(3, requires_grad=True)
        out = wrapped * plain
        out.backward(Ruled(torch.ones(3)))
        assert type(plain.grad) is torch.Tensor, key
        assert type(wrapped.grad) is Ruled, key


def test_a_decoding_class_over_wrappers_gets_a_plain_gradient() -> None:
    qdata, scale = torch.ones(2, 2, dtype=torch.int8), torch.ones(2, 1)
    weight = lamina.ScaledInt8Tensor(lamina.LoggingTensor(qdata), lamina.LoggingTensor(scale)).requires_grad_()
    plain = torch.ones(2, 2, requires_grad=True)
    for product in (torch.mul, torch.mm):  # the fallback, and a rule
        weight.grad = plain.grad = None
        product(weight, plain).sum().backward()
        assert type(weight.grad) is torch.Tensor, product
        assert type(plain.grad) is torch.Tensor, product


def test_a_gradient_that_only_autograd_holds_becomes_grad_itself() -> None:
    weight = lamina.LoggingTensor(torch.ones(3, 3)).requires_grad_()
    loss = (torch.ones(2, 3) @ weight).sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        loss.backward(retain_graph=True)
    assert [event.name for event in profile.events()].count("aten::detach") == 1  # and none on the inner tensor
    first = weight.grad
    assert type(first) is lamina.LoggingTensor
    assert (first.is_leaf, first.requires_grad, first.grad_fn, first._version) == (True, False, None, 0)
    assert torch.equal(first.to_plain(), torch.full((3, 3), 2.0))
    loss.backward()  # added in place
    assert weight.grad is first
    assert torch.equal(first.to_plain(), torch.full((3, 3), 4.0))


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_hook_detaches_is_another_tensor(when: str) -> None:
    weight = lamina.LoggingTensor(torch.ones(3, 3)).requires_grad_()
    seen: list[bool] = []

    def detaching(gradient: torch.Tensor) -> None:
        detached = gradient.detach()
        seen.append(detached is gradient)
        detached.requires_grad_()  # its own

    if when == "before":
        weight.register_hook(detaching)
    else:
        weight.register_post_accumulate_grad_hook(lambda parameter: detaching(parameter.grad))
    (torch.ones(2, 3) @ weight).sum().backward()
    assert seen == [False]
    assert weight.grad is not None
    assert not weight.grad.requires_grad
