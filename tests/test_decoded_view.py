"""Views of a class that decodes: they read and write as views of a plain tensor do."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Scaled

from lamina import UnwrittenError, WrapperTensor

WRITES: dict[str, Any] = {
    "select": lambda q: q[0].add_(1),
    "two views in a list": lambda q: torch._foreach_add_([q[0], q[1]], 1),
    "all rows in a list": lambda q: torch._foreach_mul_(list(q.unbind()), 2),
    "wrapper and view in a list": lambda q: torch._foreach_add_([q, q[0]], 1),
    "view and wrapper in a list": lambda q: torch._foreach_add_([q[0], q], 1),
    "overlapping views in a list": lambda q: torch._foreach_add_([q[0], q.t()[0]], 1),
    "view from view": lambda q: q[0].add_(q[1]),
    "copy between views": lambda q: q[0].copy_(q[1]),
    "out": lambda q: torch.add(q[0], q[1], out=q[1]),
    "chain": lambda q: q.t()[1:][0].fill_(9),
    "chain of slices": lambda q: q.view(-1)[1:5][::2].mul_(10),
    "diagonal": lambda q: q[:, :2].diagonal().zero_(),
    "setitem": lambda q: q.__setitem__((0, slice(1, 3)), torch.tensor([7.0, 8.0])),
    "setitem of an element": lambda q: q.__setitem__((1, 1), 5.0),
    "mask": lambda q: q.__setitem__(q > 2, 0.0),
    "index": lambda q: q.__setitem__((slice(None), [0, 2]), 1.0),
    "split": lambda q: [s.add_(i) for i, s in enumerate(q.split(1, 1))],
    "chunk": lambda q: q.chunk(2)[1].add_(1),
    "detach": lambda q: q[0].detach().add_(1),
    "data": lambda q: q[0].data.add_(1),
    "unfold": lambda q: q.unfold(1, 2, 2).add_(1),
    "as_strided": lambda q: q.as_strided((2,), (3,), 1).add_(5),
    "narrow": lambda q: q.narrow(1, 0, 2).sub_(1),
    "swap of rows": lambda q: (a := q[0].clone(), q[0].copy_(q[1]), q[1].copy_(a)),
    "unsqueeze and squeeze": lambda q: q.unsqueeze(0).squeeze(0)[1].add_(1),
    "permute": lambda q: q.permute(1, 0)[2].add_(1),
    "reshape": lambda q: q.reshape(3, 2)[0].add_(1),
    "flatten": lambda q: q.flatten()[2:4].add_(1),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_through_a_view_is_that_of_plain(write: str, mode: Any) -> None:
    for make in (Doubled.from_plain, lambda t: Clear(Doubled.from_plain(t))):
        plain = torch.arange(6.0).reshape(2, 3)
        q = make(plain)
        with mode():
            WRITES[write](plain)
            try:
                WRITES[write](q)
            except UnwrittenError:
                assert "in a list" in write
                assert torch.equal(q.to_plain(), torch.arange(6.0).reshape(2, 3))
                continue
        assert torch.equal(q.to_plain(), plain)


def test_a_write_through_a_view_reaches_a_quantized_wrapper() -> None:
    q = Scaled.from_plain(torch.ones(4, 4))
    addresses = (q.payload.data_ptr(), q.scale.data_ptr())
    q[0].fill_(3)
    q.t()[0].mul_(2)
    expected = torch.ones(4, 4)
    expected[0].fill_(3)
    expected.t()[0].mul_(2)
    assert torch.allclose(q.to_plain(), expected, atol=0.05)
    assert (q.payload.data_ptr(), q.scale.data_ptr()) == addresses


def test_a_view_shows_later_writes_to_the_wrapper() -> None:
    plain, q = torch.ones(2, 2), Doubled.from_plain(torch.ones(2, 2))
    view, plain_view = q[0], plain[0]
    for x in (q, plain):
        x.mul_(3)
    assert torch.equal(view + 0, plain_view)
    assert view.tolist() == plain_view.tolist()


def test_identity_and_metadata() -> None:
    q, plain = Doubled.from_plain(torch.ones(2, 3)), torch.ones(2, 3)
    for view in (lambda x: x.t(), lambda x: x[1], lambda x: x[:, ::2], lambda x: x.view(-1)[2:]):
        out, expected = view(q), view(plain)
        assert out._is_view()
        assert out._base is q
        assert out.untyped_storage()._cdata == q.untyped_storage()._cdata
        assert (out.shape, out.stride(), out.storage_offset()) == (
            expected.shape,
            expected.stride(),
            expected.storage_offset(),
        )


def test_a_change_of_the_views_own_geometry_is_refused() -> None:
    q = Doubled.from_plain(torch.ones(2, 3))
    for call in (lambda v: v.t_(), lambda v: v.resize_(1), lambda v: v.unsqueeze_(0)):
        with pytest.raises(UnwrittenError):
            call(q[:, :2])
    assert torch.equal(q.to_plain(), torch.ones(2, 3))


def test_results_are_plain() -> None:
    q = Doubled.from_plain(torch.arange(6.0).reshape(2, 3))
    for out in (q[0] + 1, q.t() @ q, torch.cat([q[0], q[1]]), q[0].clone(), q.t().contiguous(), q[0].to(torch.float64)):
        assert type(out) is torch.Tensor
    assert (q.t() @ q).tolist() == (q.to_plain().t() @ q.to_plain()).tolist()
    assert [float(v.sum()) for v in q] == [3, 12]


@pytest.mark.parametrize("part", ["conj", "imag", "imag of conj", "real", "slice of conj"])
def test_complex_views(part: str) -> None:
    call: Any = {
        "conj": lambda x: x.conj(),
        "imag": lambda x: x.imag,
        "imag of conj": lambda x: x.conj().imag,
        "real": lambda x: x.real,
        "slice of conj": lambda x: x.conj()[1:],
    }[part]
    plain = torch.randn(3, dtype=torch.complex64)
    q = Doubled.from_plain(plain)
    out, expected = call(q), call(plain)
    assert torch.allclose((out + 0).resolve_conj(), (expected + 0).resolve_conj())
    call(q).mul_(2)
    expected.mul_(2)
    assert torch.allclose(q.to_plain(), plain)


def test_gradients_through_views() -> None:
    w, plain = Doubled.from_plain(torch.ones(2, 2)).detach().requires_grad_(), torch.ones(2, 2, requires_grad=True)
    for x in (w, plain):
        (x.t()[0] * torch.tensor([2.0, 3.0])).sum().backward()
    assert type(w.grad) is torch.Tensor
    assert torch.equal(w.grad, plain.grad)


def test_copies_are_plain_values() -> None:
    view = Doubled.from_plain(torch.arange(6.0).reshape(2, 3))[1]
    for out in (copy.deepcopy(view), pickle.loads(pickle.dumps(view)), copy.copy(view)):
        values = out.to_plain() if isinstance(out, WrapperTensor) else out
        assert values.tolist() == [3, 4, 5]


def test_repr_shows_the_values() -> None:
    text = repr(Doubled.from_plain(torch.arange(6.0).reshape(2, 3))[1])
    assert "Doubled" in text
    assert "[3., 4., 5.]" in text
    assert "OpOverload" not in text


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_code_makes_takes_and_writes_views(dynamic: bool | None) -> None:
    def work(q: Any, v: Any) -> Any:
        q[0].add_(1)
        v.mul_(2)
        return q.t(), q.view(-1) + v.sum()

    results = []
    for run in (work, torch.compile(work, backend="aot_eager", fullgraph=True, dynamic=dynamic)):
        q, other = Doubled.from_plain(torch.ones(4, 3)), Doubled.from_plain(torch.ones(2, 2))
        turned, total = run(q, other[1])
        results.append([t.to_plain() if isinstance(t, WrapperTensor) else t for t in (q, other, turned, total)])
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager, compiled)


WHOLE: dict[str, Any] = {
    "view": lambda q: q.view(2, 3),
    "view_as": lambda q: q.view_as(q),
    "slice": lambda q: q[:],
    "narrow": lambda q: q.narrow(0, 0, 2),
    "expand": lambda q: q.expand(-1, 3),
    "only chunk": lambda q: q.chunk(1)[0],
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", WHOLE)
def test_a_view_of_the_whole_keeps_the_class(view: str, mode: Any) -> None:
    for plain in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).t()):
        if view == "view" and not plain.is_contiguous():
            continue
        q: Any = Doubled.from_plain(plain)
        with mode():
            whole = WHOLE[view](q)
            assert type(whole) is Doubled
            whole.add_(1)
        assert torch.equal(q.to_plain(), plain + 1)


def test_a_square_that_is_transposed_is_no_view_of_the_whole() -> None:
    q: Any = Doubled.from_plain(torch.arange(4.0).reshape(2, 2))
    assert torch.equal(q.t() + 0, torch.arange(4.0).reshape(2, 2).t())
    assert type(q.t()) is not Doubled
