"""The arguments of a constructor: each wrong one is an error that names class, field and what to pass."""

from __future__ import annotations

# ruff: noqa: PLW0108 - each call is written out
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from subjects import Clear, Granularity, Scaled, Sum, Tagged

from lamina import GradientCutError, InnerTensorError, LayoutError

T = torch.ones(2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Clear(), "misses elem"),
        (lambda: Scaled(T), "misses scale"),
        (lambda: Scaled(scale=T), "misses payload"),
        (lambda: Sum(), "misses parts"),
        (lambda: Clear(T, T), "got 2 positional"),
        (lambda: Tagged(T, 1, "a", 4), "got 4 positional"),
        (lambda: Clear(T, elem=T), "'elem' twice"),
        (lambda: Tagged(T, 1, tag=2), "'tag' twice"),
        (lambda: Clear(T, other=1), "'other' which it does not know"),
        (lambda: Clear(T, requires_grad=True), "'requires_grad' which it does not know"),
    ],
)
def test_a_wrong_count_or_name_shows_the_signature(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text) as caught:
        call()
    assert "(" in str(caught.value)
    assert "takes" in str(caught.value)


def test_the_signature_shows_defaults() -> None:
    with pytest.raises(TypeError, match=r"Tagged\(\) takes \(elem, tag=0, label='none'\)"):
        Tagged()


@pytest.mark.parametrize("value", [None, 3, 2.5, "text", [1.0, 2.0], (T,), np.ones(2), object(), {"a": T}, T.tolist()])
def test_an_inner_tensor_that_is_none_is_refused(value: Any) -> None:
    for call in (lambda: Clear(value), lambda: Scaled(T, value), lambda: Sum((T, value))):
        with pytest.raises(InnerTensorError, match=r"torch\.as_tensor"):
            call()
    if value is not None:
        with pytest.raises(InnerTensorError, match="'bias'"):
            Sum((T,), value)


def test_the_text_shows_no_big_value() -> None:
    with pytest.raises(InnerTensorError) as caught:
        Clear(np.zeros(100_000))
    assert len(str(caught.value)) < 1000
    with pytest.raises(InnerTensorError) as caught:
        Clear(list(range(100_000)))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", [(), [], None, T, 3, "ab", {T}, iter([T])])
def test_a_run_takes_a_non_empty_sequence(value: Any) -> None:
    with pytest.raises(InnerTensorError, match="'parts' takes a tuple of tensors"):
        Sum(value)


def sparse_layouts() -> list[torch.Tensor]:
    eye = torch.eye(2)
    return [eye.to_sparse(), eye.to_sparse_csr(), eye.to_sparse_csc(), eye.to_sparse_bsr((1, 1)), eye.to_mkldnn()]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
def test_other_layouts_are_refused_and_the_conversion_is_named() -> None:
    nested = torch.nested.nested_tensor([T, torch.ones(3)])
    jagged = torch.nested.nested_tensor([T, torch.ones(3)], layout=torch.jagged)
    for value in (*sparse_layouts(), nested, jagged):
        for call in (lambda v=value: Clear(v), lambda v=value: Scaled(T, v), lambda v=value: Sum((T, v))):
            with pytest.raises(LayoutError, match=r"'(elem|scale|parts)' has layout .*to_dense") as caught:
                call()
            assert isinstance(caught.value, ValueError)


@dataclasses.dataclass
class Mutable:
    bits: int = 8


@dataclasses.dataclass(frozen=True)
class Frozen:
    bits: int = 8


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, Mutable(), np.ones(2), ([1],), (Mutable(),)])
def test_an_unhashable_context_is_refused(value: Any) -> None:
    for call in (lambda: Tagged(T, value), lambda: Tagged(T, tag=value), lambda: Tagged(T, 0, value)):
        with pytest.raises(
            InnerTensorError, match=r"Tagged: the context '(tag|label)' can't be hashed.*frozen dataclass"
        ):
            call()


@pytest.mark.parametrize(
    "value",
    [1, 2.5, "a", None, True, (1, (2, "x")), Frozen(), Granularity.ROW, torch.float32, torch.device("cpu"), len],
)
def test_hashable_context_is_taken_as_it_is(value: Any) -> None:
    w = Tagged(T, value)
    assert w.tag is value
    assert (w + 1).tag is value


@pytest.mark.parametrize("value", [T, torch.nn.Parameter(T), Clear(T)])
def test_a_tensor_as_context_is_refused(value: Any) -> None:
    with pytest.raises(InnerTensorError, match=r"'tag' holds a tensor.*`tag: torch\.Tensor`"):
        Tagged(T, value)


def test_a_tensor_inside_context_is_refused_too() -> None:
    with pytest.raises(InnerTensorError, match="tensor"):
        Tagged(T, (1, T))


def test_a_tensor_that_requires_grad_is_refused_everywhere() -> None:
    hot = torch.ones(2, requires_grad=True)
    for call in (lambda: Clear(hot), lambda: Scaled(T, hot), lambda: Sum((T, hot)), lambda: Sum((T,), hot)):
        with pytest.raises(GradientCutError, match=r"shape \(2,\).*from_plain\(tensor\)"):
            call()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (1, 1, 1)])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16]
)
def test_any_strided_tensor_is_taken(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inner = torch.zeros(shape, dtype=dtype)
    w = Clear(inner)
    assert w.elem is inner
    assert (w.shape, w.dtype, w.stride()) == (inner.shape, inner.dtype, inner.stride())


def test_odd_strided_tensors_are_taken() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    for inner in (base.t(), base[::2], base[:1].expand(5, 4), base[1:, 1:3], torch.empty(3, device="meta")):
        w = Clear(inner)
        assert (w.shape, w.stride(), w.storage_offset()) == (inner.shape, inner.stride(), inner.storage_offset())
        assert w.device == inner.device


def test_a_wrapper_of_parameters_is_refused_with_the_way_out() -> None:
    parameter = torch.nn.Parameter(T)
    with pytest.raises(GradientCutError, match="detach"):
        Clear(parameter)
    frozen = torch.nn.Parameter(T, requires_grad=False)
    assert torch.equal(Clear(frozen).elem, T)


def test_constructors_under_fake_mode_meta_and_default_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        w = Scaled.from_plain(torch.randn(2, 3))
        assert type(w) is Scaled
        assert type(w.payload).__name__ == "FakeTensor"
        assert (w + 1).shape == (2, 3)
    with torch.device("meta"):
        w = Scaled.from_plain(torch.randn(2, 3))
        assert w.device.type == "meta"
        assert torch.nn.Parameter(w).device.type == "meta"


def test_constructors_under_modes_of_torch() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Empty():
        w = Clear(torch.ones(2, 2))
        assert type(w + 1) is Clear
        assert type(Scaled.from_plain(torch.ones(2, 2)) @ w) is not None
    with FlopCounterMode(display=False) as counter:
        Clear(torch.ones(2, 2)) @ Clear(torch.ones(2, 2))
    assert counter.get_total_flops() == 16
