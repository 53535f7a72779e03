"""Transparent types: values, identity, aliasing, versions, math bits and modes are those of a plain tensor."""

from __future__ import annotations

# ruff: noqa: PLR0124, PLW0108 - each call is written out; comparing with itself is the subject
from typing import Any

import pytest
import torch
from subjects import DTYPES, SHAPES, Clear, Doubled, Tagged, data_of, nest, peeled

from lamina import Fallback, LayoutError, WrapperTensor

aten = torch.ops.aten
MODES: dict[str, Any] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def storage(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata


def same(wrapped: Any, plain: Any) -> None:
    """Equal in values, metadata and class, lists included."""
    if isinstance(plain, (list, tuple)):
        assert len(wrapped) == len(plain)
        for w, p in zip(wrapped, plain, strict=True):
            same(w, p)
    elif isinstance(plain, torch.Tensor):
        inner = peeled(wrapped)
        assert isinstance(wrapped, WrapperTensor)
        for tensor in (wrapped, inner):
            assert tensor.shape == plain.shape
            assert tensor.stride() == plain.stride()
            assert tensor.dtype == plain.dtype
            assert tensor.storage_offset() == plain.storage_offset()
            assert (tensor.is_conj(), tensor.is_neg()) == (plain.is_conj(), plain.is_neg())
        assert torch.equal(inner, plain)
    else:
        assert wrapped == plain


CALLS: dict[str, Any] = {
    "add": lambda x: x + x,
    "add scalar": lambda x: x + 1,
    "radd": lambda x: 1 + x,
    "rsub": lambda x: (1 - x) if x.dtype is not torch.bool else x ^ True,
    "eq": lambda x: x == x,
    "where": lambda x: torch.where(x == x, x, x),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "detach": lambda x: x.detach(),
    "alias": lambda x: aten.alias.default(x),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "expand": lambda x: x.expand(2, *x.shape),
    "mT": lambda x: x.unsqueeze(0).unsqueeze(0).mT,
    "movedim": lambda x: x.unsqueeze(0).movedim(0, -1),
    "as_strided": lambda x: x.as_strided(x.shape, x.stride(), x.storage_offset()),
    "index": lambda x: x[..., None],
    "cat": lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]),
    "stack": lambda x: torch.stack([x, x]),
    "sum": lambda x: x.sum(),
    "any": lambda x: x.any(),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 1),
    "new_zeros": lambda x: x.new_zeros(2, 3),
    "new_tensor dtype": lambda x: x.new_ones(2, dtype=torch.int64),
    "to": lambda x: x.to(torch.float64) if not x.is_complex() else x.to(torch.complex128),
    "chunk": lambda x: x.reshape(-1).chunk(2),
    "split": lambda x: x.reshape(-1).split(2),
    "unbind": lambda x: x.unsqueeze(0).unbind(),
    "unique": lambda x: torch.unique(x) if not x.is_complex() else x,
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real,
    "meshgrid": lambda x: torch.meshgrid(x.reshape(-1), x.reshape(-1), indexing="ij"),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x.unsqueeze(0)),
    "repeat": lambda x: x.repeat(2, *([1] * x.dim())),
    "tensor scalar": lambda x: x + torch.tensor(1, dtype=x.dtype),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_values_and_metadata_are_those_of_plain(call: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        plain = data_of(shape, dtype)
        for mode in MODES.values():
            with mode():
                expected = CALLS[call](plain)
                same(CALLS[call](Clear(plain.clone())), expected)
                same(CALLS[call](Tagged(Clear(plain.clone()), 3)), expected)


@pytest.mark.parametrize("call", CALLS)
def test_non_contiguous_and_expanded_inputs(call: str) -> None:
    if call == "view":
        pytest.skip("view needs a compatible stride, for plain tensors too")
    base = torch.arange(24.0).reshape(4, 6)
    for plain in (base.t(), base[:, ::2], base[1:3, 1:4], base[:1].expand(3, 6), base.flip(0)[..., None].mT):
        same(CALLS[call](Clear(plain)), CALLS[call](plain))


VIEWS: dict[str, Any] = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "slice": lambda x: x[1:],
    "select": lambda x: x[0],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x[:1].squeeze(),
    "expand": lambda x: x[:1].expand(3, 4),
    "detach": lambda x: x.detach(),
    "alias": lambda x: aten.alias.default(x),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2,), (1,), 1),
    "view dtype": lambda x: x.view(torch.int32),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind()[1],
    "tensor_split": lambda x: x.tensor_split(2)[1],
    "hsplit": lambda x: x.hsplit(2)[1],
    "flatten": lambda x: x.flatten(),
    "view_as": lambda x: x.view_as(x),
    "mT": lambda x: x.mT,
    "data": lambda x: x.data,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
def test_views_share_storage_and_know_their_base(view: str, mode: str) -> None:
    for make in (Clear, lambda t: nest(Clear, t, 3), lambda t: Tagged(t, 5)):
        plain = torch.arange(12.0).reshape(3, 4).clone()
        w = make(plain.clone())
        with MODES[mode]():
            out, expected = VIEWS[view](w), VIEWS[view](plain)
        assert type(out) is type(w)
        assert storage(out) == storage(w)
        assert out.storage_offset() == expected.storage_offset()
        if mode != "inference_mode":
            assert out._is_view() == expected._is_view()
            assert (out._base is w) == (expected._base is plain)
        assert peeled(out).untyped_storage().data_ptr() == peeled(w).untyped_storage().data_ptr()
        assert isinstance(out, Clear) or out.tag == 5


@pytest.mark.parametrize("view", VIEWS)
def test_a_write_through_a_view_is_seen_by_the_base(view: str) -> None:
    plain = torch.arange(12.0).reshape(3, 4)
    w = Clear(plain.clone())
    VIEWS[view](plain).fill_(1)
    VIEWS[view](w).fill_(1)
    assert torch.equal(w.elem, plain)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shares_its_version_with_the_base(view: str) -> None:
    plain, w = torch.arange(12.0).reshape(3, 4), Clear(torch.arange(12.0).reshape(3, 4))
    for x in (plain, w):
        out = VIEWS[view](x)
        out.fill_(1)
        x.fill_(2)
    assert (VIEWS[view](w)._version, w._version) == (VIEWS[view](plain)._version, plain._version)


def test_a_wrapped_view_can_be_replayed() -> None:
    """AOTAutograd and in-place writes to views of leaves ask for the function that makes the view again."""
    w = Clear(torch.arange(12.0).reshape(3, 4))
    view = w.t()[1:]
    again = view._view_func(w)
    assert torch.equal(again.elem, view.elem)
    assert storage(again) == storage(w)


IN_PLACE: dict[str, Any] = {
    "add_": lambda x: x.add_(1),
    "add_ self": lambda x: x.add_(x),
    "add_ tensor": lambda x: x.add_(torch.ones(3, 4)),
    "mul_": lambda x: x.mul_(x),
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(torch.tensor(2.0)),
    "clamp_": lambda x: x.clamp_(1, 2),
    "addmm_": lambda x: x.addmm_(torch.ones(3, 2), torch.ones(2, 4)),
    "masked_fill_": lambda x: x.masked_fill_(x > 3, 0),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 2]), torch.ones(2, 4)),
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 2]),), torch.tensor(9.0)),
    "scatter_": lambda x: x.scatter_(1, torch.zeros(3, 1, dtype=torch.int64), 7.0),
    "sigmoid_": lambda x: x.sigmoid_(),
    "lerp_": lambda x: x.lerp_(torch.ones(3, 4), 0.5),
    "addcdiv_": lambda x: x.addcdiv_(torch.ones(3, 4), torch.ones(3, 4)),
    "iadd": lambda x: x.__iadd__(1),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "squeeze_ all": lambda x: x.unsqueeze_(0).squeeze_(),
    "resize_ smaller": lambda x: x.resize_(2, 2),
    "resize_ larger": lambda x: x.resize_(5, 5).fill_(1),
    "resize_as_": lambda x: x.resize_as_(torch.empty(2, 3)),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 4), 1),
    "set_": lambda x: x.set_(torch.ones(2, 2)) if type(x) is torch.Tensor else x.set_(Clear(torch.ones(2, 2))),
    "detach_": lambda x: x.detach_(),
    "requires_grad_": lambda x: x.requires_grad_(False),
}


@pytest.mark.parametrize("call", IN_PLACE)
@pytest.mark.parametrize("mode", MODES)
def test_an_in_place_op_returns_its_argument_and_keeps_outer_and_inner_together(call: str, mode: str) -> None:
    for depth in (1, 2):
        plain = torch.arange(12.0).reshape(3, 4).clone()
        w = nest(Clear, plain.clone(), depth)
        leaf = peeled(w)
        if call == "set_" and depth == 2:
            continue
        with MODES[mode]():
            IN_PLACE[call](plain)
            out = IN_PLACE[call](w)
        assert out is w
        assert peeled(w) is leaf or call == "set_"
        same(w, plain)


@pytest.mark.parametrize("call", [c for c in IN_PLACE if c not in ("requires_grad_", "detach_", "set_")])
def test_the_version_counter_is_that_of_plain(call: str) -> None:
    plain = torch.arange(12.0).reshape(3, 4)
    w = Clear(plain.clone())
    IN_PLACE[call](plain)
    IN_PLACE[call](w)
    assert w._version == plain._version


def test_an_in_place_op_on_a_saved_tensor_is_noticed() -> None:
    w = Clear(torch.ones(3)).requires_grad_()
    product = w.exp()
    loss = product.sum()
    with torch.no_grad():
        product.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


OUT: dict[str, Any] = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "sort": lambda x, out: torch.sort(x, out=(out, torch.empty(0, dtype=torch.int64))),
    "max": lambda x, out: torch.max(x, 0, out=(out, torch.empty(0, dtype=torch.int64))),
    "linalg.inv": lambda x, out: torch.linalg.inv(x + torch.eye(3), out=out),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("size", [(0,), (3, 3), (7,)])
@pytest.mark.parametrize("call", OUT)
def test_out_is_written_resized_and_returned(call: str, size: tuple[int, ...]) -> None:
    plain = torch.rand(3, 3)
    expected, target = torch.empty(size), Clear(torch.empty(size))
    OUT[call](plain, expected)
    out = OUT[call](Clear(plain), target)
    out = out[0] if isinstance(out, tuple) else out
    assert out is target
    same(target, expected)


@pytest.mark.parametrize("call", ["add", "mm", "cat"])
def test_a_plain_out_receives_the_values_of_a_wrapped_argument(call: str) -> None:
    plain = torch.rand(3, 3)
    expected = OUT[call](plain, torch.empty(0))
    target = torch.empty(0)
    out = OUT[call](Clear(plain), target)
    assert out is target
    assert type(target) is torch.Tensor
    assert torch.equal(target, expected)


@pytest.mark.parametrize("call", ["add", "mm", "cat"])
def test_a_wrapped_out_receives_the_values_of_plain_arguments(call: str) -> None:
    plain = torch.rand(3, 3)
    expected = OUT[call](plain, torch.empty(0))
    target = Clear(torch.empty(0))
    assert OUT[call](plain, target) is target
    same(target, expected)


FOREACH: dict[str, Any] = {
    "add_ scalar": lambda xs: torch._foreach_add_(xs, 1),
    "add_ list": lambda xs: torch._foreach_add_(xs, [torch.ones(2), torch.ones(2)], alpha=2),
    "mul_ itself": lambda xs: torch._foreach_mul_(xs, xs),
    "add_ tensor": lambda xs: torch._foreach_add_(xs, torch.tensor(2.0)),
    "lerp_": lambda xs: torch._foreach_lerp_(xs, [torch.ones(2), torch.zeros(2)], 0.5),
    "addcdiv_": lambda xs: torch._foreach_addcdiv_(xs, [torch.ones(2)] * 2, [torch.ones(2)] * 2),
    "zero_": lambda xs: torch._foreach_zero_(xs),
    "copy_": lambda xs: torch._foreach_copy_(xs, [torch.ones(2), torch.zeros(2)]),
    "sqrt": lambda xs: torch._foreach_sqrt(xs),
    "norm": lambda xs: torch._foreach_norm(xs),
    "sgd": lambda xs: torch._fused_sgd_(
        xs,
        [torch.ones(2)] * 2,
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.5,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    ),
}


@pytest.mark.parametrize("call", [call for call in FOREACH if call not in ("sqrt", "norm")])
@pytest.mark.parametrize("cls", [Clear, Doubled])
def test_autograd_notices_a_write_to_a_list(cls: Any, call: str) -> None:
    for place in (0, 1):
        leaf = cls.from_plain(torch.tensor([1.0, 4.0])).detach().requires_grad_()
        pair = [torch.tensor([9.0, 16.0]), torch.tensor([9.0, 16.0])]
        pair[place] = leaf
        loss = (leaf * leaf).sum()
        with torch.no_grad():
            FOREACH[call](pair)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("call", FOREACH)
def test_lists_are_written_in_place(call: str) -> None:
    plain = [torch.tensor([1.0, 4.0]), torch.tensor([9.0, 16.0])]
    wrapped = [Clear(t.clone()) for t in plain]
    leaves = [w.elem for w in wrapped]
    expected, out = FOREACH[call](plain), FOREACH[call](wrapped)
    for w, p, leaf in zip(wrapped, plain, leaves, strict=True):
        same(w, p)
        assert w.elem is leaf
    if expected is not None and "_" not in call and call != "sgd":
        same(out, expected)


def test_a_list_of_wrapped_and_plain_tensors() -> None:
    a, b = Clear(torch.ones(2)), torch.ones(2)
    torch._foreach_add_([a, b], [b.clone(), a.clone()])
    assert a.elem.tolist() == b.tolist() == [2, 2]
    same(torch.cat([a, b]), torch.full((4,), 2.0))
    same(torch.stack([b, a]), torch.full((2, 2), 2.0))


def test_the_same_wrapper_twice_is_one_tensor() -> None:
    w, plain = Clear(torch.ones(2)), torch.ones(2)
    torch._foreach_add_([w, w], 1)
    torch._foreach_add_([plain, plain], 1)
    same(w, plain)
    w.add_(w, alpha=2)
    plain.add_(plain, alpha=2)
    same(w, plain)


# the math bits

BITS: dict[str, Any] = {
    "conj": lambda x: x.conj(),
    "conj resolved": lambda x: x.conj().resolve_conj(),
    "imag": lambda x: x.imag,
    "imag of conj": lambda x: x.conj().imag,
    "neg resolved": lambda x: x.conj().imag.resolve_neg(),
    "adjoint": lambda x: x.adjoint(),
    "mH": lambda x: x.mH,
    "conj times": lambda x: x.conj() * x,
    "conj mm": lambda x: x.conj() @ x.mH,
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "view_as_real": lambda x: torch.view_as_real(x),
    "imag plus": lambda x: x.conj().imag + 1,
    "conj slice": lambda x: x.conj()[1:].t(),
    "conj clone": lambda x: x.conj().clone(),
    "hfftn": lambda x: torch.fft.hfftn(x),
    "ihfftn": lambda x: torch.fft.ihfftn(x.real),
    "ifft2": lambda x: torch.fft.ifft2(x.conj()),
    "pinv": lambda x: torch.linalg.pinv(x),
    "svdvals": lambda x: torch.linalg.svdvals(x.conj()),
    "inv of adjoint": lambda x: torch.linalg.inv(x.mH),
    "solve": lambda x: torch.linalg.solve(x.mH, x.conj()),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x.conj(), x),
    "cat": lambda x: torch.cat([x.conj(), x]),
    "linear": lambda x: torch.nn.functional.linear(x, x.conj()),
    "abs": lambda x: x.conj().abs(),
    "sum of imag": lambda x: x.conj().imag.sum(),
    "foreach": lambda x: torch._foreach_mul([x.conj(), x], [x, x.conj()])[0],
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("call", BITS)
def test_math_bits_are_those_of_plain_values_and_gradients(call: str, dtype: torch.dtype) -> None:
    values = torch.randn(3, 3, dtype=dtype)
    for make in (Clear, lambda t: nest(Clear, t, 2)):
        plain, w = values.clone().requires_grad_(), make(values.clone()).requires_grad_()
        expected, out = BITS[call](plain), BITS[call](w)
        assert (out.is_conj(), out.is_neg()) == (expected.is_conj(), expected.is_neg())
        assert (peeled(out).is_conj(), peeled(out).is_neg()) == (expected.is_conj(), expected.is_neg())
        assert torch.allclose(peeled(out.detach()).resolve_conj().resolve_neg(), expected.detach(), atol=1e-5)
        expected.abs().sum().backward()
        out.abs().sum().backward()
        assert plain.grad is not None
        assert torch.allclose(peeled(w.grad).resolve_conj(), plain.grad, atol=1e-4)


@pytest.mark.parametrize("call", BITS)
def test_math_bits_under_inference_mode(call: str) -> None:
    values = torch.randn(3, 3, dtype=torch.complex64)
    with torch.inference_mode():
        expected, out = BITS[call](values), BITS[call](Clear(values))
    assert (out.is_conj(), out.is_neg()) == (expected.is_conj(), expected.is_neg())
    assert torch.allclose(out.elem.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg(), atol=1e-5)


def test_a_wrapper_of_a_conjugated_tensor_is_conjugated() -> None:
    values = torch.randn(3, dtype=torch.complex64)
    for inner in (values.conj(), values.conj().imag):
        w = Clear(inner)
        assert (w.is_conj(), w.is_neg()) == (inner.is_conj(), inner.is_neg())
        assert torch.equal(peeled(w + 0), inner + 0)
        assert torch.equal(
            peeled(torch.view_as_real(w.resolve_conj())) if inner.is_complex() else peeled(w * 1),
            (torch.view_as_real(inner.resolve_conj()) if inner.is_complex() else inner * 1),
        )


def test_writes_to_a_conjugated_wrapper() -> None:
    values = torch.randn(3, dtype=torch.complex64)
    plain, w = values.clone(), Clear(values.clone())
    plain.conj().add_(1j).mul_(2)
    w.conj().add_(1j).mul_(2)
    assert torch.allclose(w.elem, plain)
    plain.conj().imag.fill_(3)
    w.conj().imag.fill_(3)
    assert torch.allclose(w.elem, plain)
    out_plain, out_w = torch.empty(3, dtype=torch.complex64).conj(), Clear(torch.empty(3, dtype=torch.complex64)).conj()
    torch.mul(plain, 2j, out=out_plain)
    torch.mul(w, 2j, out=out_w)
    assert torch.allclose(peeled(out_w).resolve_conj(), out_plain.resolve_conj())


# inference mode


INFERENCE: dict[str, Any] = {
    **VIEWS,
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "matmul": lambda x: x @ x.t(),
    "add": lambda x: x + 1,
    "add_": lambda x: x.add_(1),
    "to": lambda x: x.to(torch.float64),
    "contiguous": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "softmax": lambda x: x.softmax(-1),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2])),
    "setitem": lambda x: (x.__setitem__((slice(None), 1), 5.0), x)[1],
    "t_": lambda x: x.clone().t_(),
    "out": lambda x: torch.add(x, 1, out=x.clone()),
}


@pytest.mark.parametrize("made", ["inside", "outside", "outside, requires grad"])
@pytest.mark.parametrize("call", INFERENCE)
def test_inference_mode_with_wrappers_from_both_sides(call: str, made: str) -> None:
    for depth in (1, 2):
        plain = torch.arange(12.0).reshape(3, 4) / 10
        w = nest(Clear, plain.clone(), depth)
        if "grad" in made:
            if call in ("add_", "setitem"):
                continue
            w.requires_grad_()
        with torch.inference_mode():
            w = nest(Clear, plain.clone(), depth) if made == "inside" else w
            expected, out = INFERENCE[call](plain), INFERENCE[call](w)
            same(out, expected)
        assert torch.equal(peeled(out) + 0, expected + 0), "usable afterwards"


def test_a_result_made_under_inference_mode_can_be_used_outside() -> None:
    w = Clear(torch.ones(3, 4))
    with torch.inference_mode():
        made, view = w + 1, w.t()
    with torch.no_grad():
        same(made + 1, torch.full((3, 4), 3.0))
        same(view + 1, torch.ones(3, 4).t() + 1)


def test_parameters_in_inference_mode() -> None:
    layer = torch.nn.Linear(4, 3)
    plain = layer(torch.ones(2, 4))
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    with torch.inference_mode():
        out = layer(torch.ones(2, 4))
        layer.weight[1:]
    assert torch.allclose(peeled(out), plain)


# what a strided wrapper cannot hold


@pytest.mark.parametrize(
    "make",
    [
        lambda w: w.to_sparse(),
        lambda w: w.to_sparse_csr(),
        lambda w: w.to_mkldnn(),
        lambda w: torch.sparse_coo_tensor(torch.tensor([[0, 1]]), w[0, :2], (3,)),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_result_of_another_layout_is_refused(make: Any) -> None:
    with pytest.raises(LayoutError, match=r"Clear holds strided tensors only.*to_dense"):
        make(Clear(torch.ones(2, 2)))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_results_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"Clear holds strided"):
        torch.nested.as_nested_tensor([Clear(torch.ones(2)), Clear(torch.ones(3))]) + 1


def test_a_sparse_operand_beside_a_wrapper_works_or_is_refused_clearly() -> None:
    plain, sparse = torch.ones(2, 2), torch.eye(2).to_sparse()
    same(torch.sparse.mm(sparse, Clear(plain)), torch.sparse.mm(sparse, plain))
    same(Clear(plain) + sparse, plain + sparse)
    with pytest.raises(LayoutError):
        Clear(plain) * sparse


# meta, other devices


def test_meta_tensors() -> None:
    w = Clear(torch.empty(3, 4, device="meta"))
    assert w.device.type == "meta"
    out = torch.nn.functional.linear(w, w)
    assert (out.shape, out.device.type, type(out)) == ((3, 3), "meta", Clear)
    moved = Clear(torch.ones(2)).to("meta")
    assert (moved.device.type, moved.elem.device.type) == ("meta", "meta")


def test_factories_keep_class_and_context_and_follow_their_arguments() -> None:
    w = Tagged(torch.ones(2, 3), 7, "here")
    for out in (
        torch.zeros_like(w),
        torch.empty_like(w, dtype=torch.int64),
        w.new_zeros(4),
        torch.rand_like(w),
        w.new_full((2,), 3.0, dtype=torch.float64),
        torch.ones_like(w, device="meta"),
        torch.randint_like(w, 3),
        w.new_empty(0),
        w.new_empty_strided((2, 3), (1, 2)),
    ):
        assert type(out) is Tagged
        assert (out.tag, out.label) == (7, "here")
        assert (out.dtype, out.device, out.shape, out.stride()) == (
            out.elem.dtype,
            out.elem.device,
            out.elem.shape,
            out.elem.stride(),
        )
    assert torch.empty_like(w, dtype=torch.int64).dtype is torch.int64
    assert w.new_full((2,), 3.0, dtype=torch.float64).elem.tolist() == [3, 3]


def test_context_comes_from_the_first_wrapper() -> None:
    a, b = Tagged(torch.ones(2), 1), Tagged(torch.ones(2), 2)
    assert (a + b).tag == 1
    assert (b + a).tag == 2
    assert torch.cat([a, b]).tag == 1
    assert (torch.ones(2) + b).tag == 2
    assert torch.where(torch.tensor([True, False]), b, a).tag == 2


def test_ops_without_tensor_results() -> None:
    w = Clear(torch.ones(2))
    assert torch.equal(w, Clear(torch.ones(2)))
    assert torch.equal(w, torch.ones(2))
    assert torch.equal(torch.ones(2), w)
    assert not torch.equal(w, torch.zeros(2))
    assert torch.allclose(w, torch.ones(2))
    assert torch.allclose(torch.ones(2), w)
    assert w.sum().item() == 2
    assert bool(w[0])
    assert float(w[0]) == int(w[0]) == 1
    assert torch.tensor([5, 6])[Clear(torch.tensor(1))] == 6
    assert list(range(3))[Clear(torch.tensor(1))] == 1
    assert len(w) == 2
    assert [float(v) for v in w] == [1, 1]
    assert w[0] in w


def test_assert_close() -> None:
    w = Clear(torch.ones(2))
    torch.testing.assert_close(w, Clear(torch.ones(2)))
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(w, Clear(torch.zeros(2)))


def test_wrapped_indices() -> None:
    index, mask, values = torch.tensor([2, 0]), torch.tensor([True, False, True]), torch.arange(3.0)
    same(Clear(values)[Clear(index)], values[index])
    same(values[Clear(index)], values[index])
    same(Clear(values)[Clear(mask)], values[mask])
    same(Clear(values)[mask], values[mask])
    same(torch.index_select(Clear(values), 0, Clear(index)), values[index])
    same(torch.nn.functional.embedding(Clear(index), torch.eye(3)), torch.eye(3)[index])


def test_bad_calls_fail_as_for_plain_tensors() -> None:
    plain, w = torch.ones(2, 3), Clear(torch.ones(2, 3))
    bad: list[Any] = [
        lambda x: x @ x,
        lambda x: x.view(5),
        lambda x: x.expand(3, 3),
        lambda x: x[5],
        lambda x: x.transpose(0, 7),
        lambda x: torch.cat([x, torch.ones(4, 4)]),
        lambda x: x.sum(9),
        lambda x: x.add_(torch.ones(7)),
        lambda x: torch.add(x),
        lambda x: torch.add(x, None),
        lambda x: torch.mm(x, x, x),
    ]
    for call in bad:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever plain raises
            call(plain)
        with pytest.raises(type(expected.value)):
            call(w)
    assert torch.equal(w.elem, plain)


def test_autocast() -> None:
    plain, w = torch.ones(2, 3), Clear(torch.ones(2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        expected, out = plain @ plain.t(), w @ w.t()
    assert out.dtype is expected.dtype is torch.bfloat16
    same(out, expected)


def test_lift_fresh_keeps_a_wrapper() -> None:
    w = Clear(torch.ones(2))
    assert type(aten.lift_fresh.default(w)) is Clear
    assert type(aten.lift_fresh_copy.default(w)) is Clear


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
def test_depth_changes_nothing(depth: int) -> None:
    plain = torch.randn(4, 4)
    w = nest(Clear, plain.clone(), depth)

    def work(x: Any) -> Any:
        y = torch.nn.functional.linear(x, x).relu().t()[1:] + x[1:]
        y[0].mul_(2)
        return torch.cat([y, x]).sum(0)

    out = work(w)
    levels = 0
    while isinstance(out, Clear):
        out, levels = out.elem, levels + 1
    assert levels == depth
    assert torch.equal(out, work(plain))


def test_mixed_depths_meet() -> None:
    one, two = nest(Clear, torch.ones(2), 1), nest(Clear, torch.ones(2), 2)
    assert peeled(one + two).tolist() == peeled(two + one).tolist() == [2, 2]


def test_a_subclass_and_its_parent_meet() -> None:
    class Child(Clear):
        pass

    parent, child = Clear(torch.ones(2)), Child(torch.ones(2))
    for out in (parent + child, child + parent, torch.cat([parent, child])):
        assert peeled(out).sum() in (4, 4)


def test_a_child_of_a_child_keeps_its_class() -> None:
    class Child(Clear):
        more: int = 3
        fallback = Fallback.UNWRAP

    w = Child(torch.ones(2), 9)
    for out in (w + 1, w.detach(), w.view(-1), w.add_(1), torch.cat([w, w])):
        assert type(out) is Child
        assert out.more == 9


def test_a_kernel_that_conjugates_what_it_writes_is_followed() -> None:
    """``lu_solve`` from the right leaves its ``out=`` with a conj bit."""
    generator = torch.Generator().manual_seed(0)
    matrix, right = (torch.randn(n, 3, dtype=torch.complex64, generator=generator) for n in (3, 4))
    lu, pivots = torch.linalg.lu_factor(matrix)
    plain, wrapped = torch.zeros_like(right), Clear(torch.zeros_like(right))
    torch.linalg.lu_solve(lu, pivots, right, left=False, out=plain)
    torch.linalg.lu_solve(Clear(lu), Clear(pivots), Clear(right), left=False, out=wrapped)
    assert plain.is_conj()
    same(wrapped, plain)
    same(torch.view_as_real(wrapped.conj()), torch.view_as_real(plain.conj()))
