"""``to_plain`` and ``from_plain``: differentiable both ways, in memory of their own, context by name."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of schemas and hooks
from typing import Any

import pytest
import torch
from subjects import FLOATING, SHAPES, Clear, Doubled, Granularity, Scaled, Sum, Tagged, data_of, nest

from lamina import Fallback, InnerTensorError, LaminaError, LayoutError, WrapperTensor

MODES: dict[str, Any] = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.bool], ids=str)
def test_there_and_back(dtype: torch.dtype, mode: str) -> None:
    for shape in SHAPES:
        values = data_of(shape, dtype)
        classes: list[Any] = [Clear, Tagged]
        if dtype.is_floating_point or dtype.is_complex:
            classes += [Doubled, Sum]
        with MODES[mode]():
            for cls in classes:
                w = cls.from_plain(values)
                assert type(w) is cls
                back = w.to_plain()
                assert type(back) is torch.Tensor
                assert back.dtype is dtype
                assert torch.equal(back, values), cls


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Scaled, Sum])
def test_from_plain_copies(cls: Any) -> None:
    source = torch.ones(2, 2)
    w = cls.from_plain(source)
    source.fill_(9)
    assert torch.allclose(w.to_plain(), torch.ones(2, 2), atol=0.01)
    with torch.no_grad():
        w.add_(1)
    assert source.tolist() == [[9, 9], [9, 9]]


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Scaled, Sum])
@pytest.mark.parametrize("depth", [1, 2])
def test_to_plain_shares_no_memory(cls: Any, depth: int) -> None:
    w = cls.from_plain(torch.ones(2, 2))
    w = nest(Clear, w, depth - 1)
    values = w.to_plain()
    values.fill_(9)
    assert torch.allclose(w.to_plain(), torch.ones(2, 2), atol=0.01)


def test_to_plain_shares_no_memory_where_decode_returns_a_view() -> None:
    class Turned(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.PLAIN

        @classmethod
        def encode(cls, values: torch.Tensor, **context: Any) -> Turned:
            return cls(values.t())

        def decode(self) -> torch.Tensor:
            return self.elem.t()

    source = torch.arange(4.0).reshape(2, 2)
    w = Turned.from_plain(source)
    assert torch.equal(w.to_plain(), source)
    w.to_plain().fill_(9)
    assert torch.equal(w.to_plain(), source)
    assert torch.equal(w + 1, source + 1)


def test_a_mutation_of_the_source_after_wrapping_changes_no_gradient() -> None:
    for cls in (Clear, Doubled, Tagged):
        source = torch.ones(2, requires_grad=True)
        middle = source * 2
        loss = cls.from_plain(middle).to_plain().square().sum()
        with torch.no_grad():
            middle.fill_(100)
        loss.backward()
        assert source.grad is not None
        assert source.grad.tolist() == [8, 8]


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Scaled, Sum])
def test_both_are_differentiable_and_the_source_gets_a_plain_gradient(cls: Any) -> None:
    source = torch.randn(3, 3, requires_grad=True)
    w = cls.from_plain(source)
    assert w.requires_grad
    assert w.grad_fn is not None
    assert not w.is_leaf
    (w.to_plain() * torch.arange(9.0).reshape(3, 3)).sum().backward()
    assert type(source.grad) is torch.Tensor
    assert torch.equal(source.grad, torch.arange(9.0).reshape(3, 3))
    source.grad = None
    (cls.from_plain(source) * 2).sum().backward()
    assert type(source.grad) is torch.Tensor
    assert torch.equal(source.grad, torch.full((3, 3), 2.0))


def test_from_plain_of_a_wrapper_nests() -> None:
    inner = Tagged(torch.ones(2), 3)
    w = Clear.from_plain(inner)
    assert type(w) is Clear
    assert type(w.elem) is Tagged
    assert w.elem.tag == 3
    assert type(w.to_plain()) is torch.Tensor
    leaf = Tagged(torch.ones(2), 3).requires_grad_()
    (Clear.from_plain(leaf).to_plain() * 3).sum().backward()
    assert torch.equal(
        leaf.grad.to_plain() if isinstance(leaf.grad, WrapperTensor) else leaf.grad, torch.full((2,), 3.0)
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_all_levels_come_off_and_gradients_go_through(depth: int) -> None:
    w = nest(Clear, torch.ones(2), depth).requires_grad_()
    values = w.to_plain()
    assert type(values) is torch.Tensor
    (values * 3).sum().backward()
    gradient = w.grad
    for _ in range(depth):
        assert type(gradient) is Clear
        gradient = gradient.elem
    assert gradient.tolist() == [3, 3]


def test_context_goes_by_name() -> None:
    assert Tagged.from_plain(torch.ones(1), tag=7).tag == 7
    assert Tagged.from_plain(torch.ones(1), label="x", tag=2).label == "x"
    assert Scaled.from_plain(torch.ones(2, 2), granularity=Granularity.TENSOR).scale.dim() == 0
    with pytest.raises(TypeError, match="nonsense"):
        Tagged.from_plain(torch.ones(1), nonsense=3)
    with pytest.raises(TypeError):
        Tagged.from_plain(torch.ones(1), 7)  # type: ignore[misc]
    with pytest.raises(InnerTensorError, match="can't be hashed"):
        Tagged.from_plain(torch.ones(1), tag=[1])


def test_context_without_default_has_to_be_given() -> None:
    class Needs(WrapperTensor):
        elem: torch.Tensor
        level: int
        fallback = Fallback.UNWRAP

    with pytest.raises(TypeError, match="level"):
        Needs.from_plain(torch.ones(1))
    assert Needs.from_plain(torch.ones(1), level=2).level == 2


def test_a_class_that_says_nothing_about_encoding_says_what_to_write() -> None:
    class Two(WrapperTensor):
        a: torch.Tensor
        b: torch.Tensor

    with pytest.raises(NotImplementedError, match=r"Two.*encode\(cls, values, \*\*context\)"):
        Two.from_plain(torch.ones(1))
    with pytest.raises(NotImplementedError, match=r"Two.*decode\(self\)"):
        Two(torch.ones(1), torch.ones(1)).to_plain()


def test_conversions_need_no_rules() -> None:
    class Bare(WrapperTensor):
        elem: torch.Tensor

    w = Bare.from_plain(torch.ones(2, requires_grad=True))
    assert w.to_plain().tolist() == [1, 1]
    w.to_plain().sum().backward()


@pytest.mark.parametrize("wrong", [None, 3, [1.0], "text", (1, 2)])
def test_from_plain_of_something_else_is_refused(wrong: Any) -> None:
    for cls in (Clear, Doubled):
        with pytest.raises((InnerTensorError, TypeError), match=r"(?i)tensor"):
            cls.from_plain(wrong)


def test_from_plain_of_a_numpy_array_names_the_way() -> None:
    import numpy as np

    with pytest.raises((InnerTensorError, TypeError), match="as_tensor"):
        Clear.from_plain(np.ones(2))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
def test_other_layouts_are_refused() -> None:
    sparse = torch.eye(2).to_sparse()
    for values in (sparse, sparse.to_sparse_csr(), torch.eye(2).to_mkldnn()):
        for cls in (Clear, Doubled):
            with pytest.raises(LayoutError, match="to_dense"):
                cls.from_plain(values)
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    old = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for values in (jagged, old):
        with pytest.raises(LayoutError, match="padded"):
            Clear.from_plain(values)


def test_strides_are_kept_and_expanded_values_too() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    for source in (values.t(), values[:, ::2], values[:1].expand(4, 3)):
        w = Clear.from_plain(source)
        assert torch.equal(w.to_plain(), source)
        assert w.stride() == w.elem.stride()
        w.add_(1)
        assert torch.equal(w.to_plain(), source + 1)


def test_conjugated_values() -> None:
    values = torch.randn(3, dtype=torch.complex64)
    for source in (values.conj(), values.conj().imag):
        for cls in (Clear, Doubled):
            w = cls.from_plain(source)
            assert torch.allclose(w.to_plain().resolve_conj().resolve_neg(), source.resolve_conj().resolve_neg())
            assert torch.allclose((w + 0 if cls is Doubled else (w + 0).elem), source + 0)


def test_meta_tensors_convert() -> None:
    w = Clear.from_plain(torch.empty(2, 3, device="meta"))
    assert w.to_plain().device.type == "meta"


@pytest.mark.parametrize("cls", [Clear, Doubled, Scaled])
def test_parameters_convert(cls: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    w = cls.from_plain(parameter)
    assert not isinstance(w, torch.nn.Parameter)
    wrapped = torch.nn.Parameter(cls.from_plain(torch.ones(2, 2)))
    values = wrapped.to_plain()
    assert not isinstance(values, torch.nn.Parameter)
    assert values.requires_grad
    values.sum().backward()
    assert wrapped.grad is not None


def test_a_frozen_wrapper_gives_values_without_a_graph() -> None:
    assert Clear(torch.ones(2)).to_plain().grad_fn is None
    with torch.no_grad():
        assert Clear(torch.ones(2)).requires_grad_().to_plain().grad_fn is None


def test_conversions_across_inference_mode() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    with torch.inference_mode():
        assert w.to_plain().tolist() == [1, 1]
        made = Clear.from_plain(torch.ones(2))
        assert (made + 1).to_plain().tolist() == [2, 2]
    assert made.to_plain().tolist() == [1, 1]


def test_an_encode_that_returns_something_else_is_refused() -> None:
    class Plain(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.PLAIN

        @classmethod
        def encode(cls, values: torch.Tensor, **context: Any) -> Any:
            return values

    with pytest.raises(LaminaError, match=r"Plain.*encode"):
        Plain.from_plain(torch.ones(2))
    with pytest.raises(LaminaError, match=r"Plain.*encode"):
        Plain(torch.ones(2)).add_(1)


@pytest.mark.parametrize("values", [torch.ones(7), torch.ones(2, dtype=torch.float64), "text", None])
def test_a_decode_that_does_not_fit_the_outer_tensor_is_refused(values: Any) -> None:
    class Wrong(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.PLAIN

        def decode(self) -> Any:
            return values

    for call in (lambda w: w.to_plain(), lambda w: w + 1, lambda w: w == 1):
        with pytest.raises(LaminaError, match=r"Wrong.*decode"):
            call(Wrong(torch.ones(2)))


def test_a_class_that_decodes_and_does_not_encode_writes_nothing_wrong() -> None:
    """``encode(values) == cls(values)`` holds only where ``decode`` is the inner tensor."""

    class Half(WrapperTensor):
        a: torch.Tensor
        fallback = Fallback.PLAIN

        def decode(self) -> torch.Tensor:
            return self.a * 2

    def assign(w: Any) -> None:
        w[0] = 5.0

    writes = (
        lambda w: w.add_(1),
        lambda w: w.copy_(torch.ones(2)),
        assign,
        lambda w: type(w).from_plain(torch.ones(2)),
    )
    for write in writes:
        half = Half(torch.ones(2))
        with pytest.raises(LaminaError, match="encode"):
            write(half)
        assert half.to_plain().tolist() == [2, 2]
    assert Half(torch.ones(2)).to(torch.float64).tolist() == [2, 2]
