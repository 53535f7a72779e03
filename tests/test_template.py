"""The generated functions: what they build, flatten and rebuild, and how they show in tracebacks."""

from __future__ import annotations

# ruff: noqa: ARG002 - signatures are those of schemas and hooks
import itertools
import linecache
import traceback
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Granularity, Scaled, Sum, Tagged

from lamina import OuterMetadata, WrapperTensor


def rebuilt(w: Any, size: Any = None, stride: Any = None) -> Any:
    names, context = w.__tensor_flatten__()
    inner = {name: getattr(w, name) for name in names}
    return type(w).__tensor_unflatten__(
        inner, context, w.size() if size is None else size, w.stride() if stride is None else stride
    )


def test_arguments_follow_the_order_of_the_declaration() -> None:
    class Four(WrapperTensor):
        a: torch.Tensor
        level: int
        b: tuple[torch.Tensor, ...]
        c: torch.Tensor | None
        label: str = "x"

    a, b, c = torch.ones(2), torch.zeros(3), torch.full((1,), 5.0)
    one = Four(a, 3, (b,), c, "y")
    two = Four(label="y", c=c, b=(b,), level=3, a=a)
    for w in (one, two):
        assert w.a is a
        assert w.level == 3
        assert w.b[0] is b
        assert w.c is c
        assert w.label == "y"
    assert one.__tensor_flatten__() == (["a", "b_0", "c"], (3, 1, True, "y"))


def test_flatten_lists_only_the_tensors_that_are_there() -> None:
    t = torch.ones(2)
    assert Sum((t, t)).__tensor_flatten__()[0] == ["parts_0", "parts_1"]
    assert Sum((t,), t).__tensor_flatten__()[0] == ["parts_0", "bias"]
    contexts = {
        Sum((t,)).__tensor_flatten__()[1],
        Sum((t, t)).__tensor_flatten__()[1],
        Sum((t,), t).__tensor_flatten__()[1],
    }
    assert len(contexts) == 3, "presence and length are part of the guard"
    assert all(isinstance(hash(c), int) for c in contexts)


def test_the_context_is_a_tuple_of_the_values_and_compares_by_value() -> None:
    t = torch.ones(2)
    assert Clear(t).__tensor_flatten__()[1] == ()
    assert Tagged(t, 3, "a").__tensor_flatten__()[1] == (3, "a")
    assert Tagged(t, 3, "a").__tensor_flatten__()[1] == Tagged(t * 2, 3, "a").__tensor_flatten__()[1]
    assert Scaled(t.to(torch.int8), t).__tensor_flatten__()[1] == (Granularity.ROW,)


@pytest.mark.parametrize(
    "w",
    [
        Clear(torch.arange(6.0).reshape(2, 3).t()),
        Tagged(torch.ones(2), 3, "a"),
        Scaled.from_plain(torch.randn(2, 3)),
        Sum((torch.ones(2), torch.ones(2))),
        Sum((torch.ones(2),), torch.ones(2)),
        Clear(torch.ones(())),
        Clear(torch.ones(0, 3)),
    ],
    ids=lambda w: type(w).__name__,
)
def test_unflatten_is_the_inverse_of_flatten(w: Any) -> None:
    back = rebuilt(w)
    assert type(back) is type(w)
    assert back.__tensor_flatten__() == w.__tensor_flatten__()
    assert (back.shape, back.stride(), back.dtype, back.device) == (w.shape, w.stride(), w.dtype, w.device)
    for name in w.__tensor_flatten__()[0]:
        assert getattr(back, name) is getattr(w, name)
    assert not back.requires_grad


def test_unflatten_uses_the_given_outer_size_and_stride() -> None:
    for w in (Clear(torch.ones(6)), Scaled(torch.ones(6, dtype=torch.int8), torch.ones(1))):
        back = rebuilt(w, torch.Size([2, 3]), (3, 1))
        assert (back.shape, back.stride()) == ((2, 3), (3, 1))


def test_unflatten_keeps_conj_and_neg_bits() -> None:
    values = torch.randn(3, dtype=torch.complex64)
    for inner in (values.conj(), values.conj().imag):
        w = Clear(inner)
        back = rebuilt(w)
        assert (back.is_conj(), back.is_neg()) == (w.is_conj(), w.is_neg())
        assert torch.equal((back + 0).elem, inner + 0)


def test_unflatten_does_not_run_the_constructors_checks() -> None:
    """Tracers pass inner tensors that require grad, and fake ones."""
    w = Clear(torch.ones(2))
    back = Clear.__tensor_unflatten__({"elem": torch.ones(2, requires_grad=True)}, (), w.size(), w.stride())
    assert type(back) is Clear


def test_unflatten_takes_symbolic_sizes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context: Any = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.DYNAMIC])
    inner = mode.from_tensor(torch.ones(5, 7), symbolic_context=context)
    for back in (
        Clear.__tensor_unflatten__({"elem": inner}, (), inner.size(), inner.stride()),
        Scaled.__tensor_unflatten__(
            {"payload": inner, "scale": inner}, (Granularity.ROW,), inner.size(), inner.stride()
        ),
    ):
        assert isinstance(back.size(0), torch.SymInt)
        assert isinstance(back.stride(0), torch.SymInt)
        assert isinstance((back + 1).size(0), torch.SymInt)


def test_outer_metadata_decides_dtype_size_and_device() -> None:
    class Packed(WrapperTensor):
        """Two values a byte."""

        nibbles: torch.Tensor
        length: int

        @classmethod
        def outer_metadata(cls, nibbles: torch.Tensor, length: int) -> OuterMetadata:
            return OuterMetadata((length,), (1,), 0, torch.float64, nibbles.device)

    w = Packed(torch.zeros(3, dtype=torch.uint8), 5)
    assert (w.shape, w.stride(), w.dtype) == ((5,), (1,), torch.float64)
    assert (w.detach().shape, w.detach().dtype, w.detach().length) == ((5,), torch.float64, 5)
    assert rebuilt(w).shape == (5,)
    assert w.numel() == 5
    assert w.element_size() == 8


def test_outer_metadata_is_inherited_and_may_be_given_as_a_plain_tuple() -> None:
    class Child(Scaled):
        pass

    class Tuple(WrapperTensor):
        elem: torch.Tensor

        @classmethod
        def outer_metadata(cls, elem: torch.Tensor) -> Any:
            return elem.size(), elem.stride(), 0, torch.float16, elem.device

    assert Child.from_plain(torch.ones(2, 2)).dtype is torch.float32
    assert Tuple(torch.ones(2)).dtype is torch.float16


def test_outer_metadata_may_call_super() -> None:
    class Half(WrapperTensor):
        elem: torch.Tensor
        level: int = 0

        @classmethod
        def outer_metadata(cls, elem: torch.Tensor, level: int) -> OuterMetadata:
            return super().outer_metadata(elem, level)._replace(dtype=torch.float16)

    assert Half(torch.ones(2, 3)).shape == (2, 3)
    assert Half(torch.ones(2, 3)).dtype is torch.float16


def test_the_first_inner_tensor_gives_the_metadata_whatever_stands_before_it() -> None:
    class Late(WrapperTensor):
        level: int
        elem: torch.Tensor
        other: torch.Tensor

    w = Late(3, torch.ones(2, 3, dtype=torch.float64).t(), torch.ones(1, dtype=torch.int8))
    assert (w.shape, w.stride(), w.dtype) == ((3, 2), (1, 3), torch.float64)


def test_storage_offset_is_that_of_the_inner_tensor() -> None:
    w = Clear(torch.arange(10.0)[3:7])
    assert w.storage_offset() == 3
    assert torch.equal((w[1:] + 0).elem, torch.tensor([4.0, 5.0, 6.0]))


def test_inner_fields_are_there_before_the_object_can_escape() -> None:
    seen: list[Any] = []

    class Watched(Clear):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            seen.append(self.elem)

    t = torch.ones(2)
    w = Watched(t)
    assert seen == [t] or seen[0] is t
    w + 1
    w.detach()
    assert len(seen) == 1, "results of ops don't pass through __init__"


def test_an_init_of_the_author_gets_the_constructors_arguments() -> None:
    class Named(Clear):
        def __init__(self, elem: torch.Tensor, note: str = "none") -> None:
            self.note = note

    with pytest.raises(TypeError, match="note"):
        Named(torch.ones(1), note="x")
    assert Named(torch.ones(1)).note == "none"


def test_generated_code_shows_in_tracebacks() -> None:
    try:
        Clear._generated.make(Clear, 3)
    except AttributeError as error:
        lines = "".join(traceback.format_exception(error))
    assert "<lamina Clear" in lines
    assert "in make" in lines
    assert ".size()" in lines, "the line itself is shown"
    filename = Clear._generated.make.__code__.co_filename
    assert "def make(" in "".join(linecache.getlines(filename))
    linecache.checkcache()
    assert linecache.getlines(filename), "survives checkcache"


def test_each_class_has_its_own_text() -> None:
    names = {cls._generated.make.__code__.co_filename for cls in (Clear, Tagged, Scaled, Sum, Doubled)}
    assert len(names) == 5
    assert Clear._generated.make.__qualname__ == "Clear.make"


@pytest.mark.parametrize("length", [1, 2, 5])
def test_runs_read_as_tuples(length: int) -> None:
    tensors = tuple(torch.full((2,), float(i)) for i in range(length))
    w = Sum(tensors)
    assert isinstance(w.parts, tuple)
    assert all(a is b for a, b in itertools.zip_longest(w.parts, tensors))
    assert all(a is b for a, b in itertools.zip_longest(Sum(list(tensors)).parts, tensors))
    with pytest.raises(AttributeError):
        w.parts = tensors


def test_rewrapping_keeps_context_and_takes_new_tensors() -> None:
    w = Tagged(torch.ones(2), 3, "a")
    out = (w + 1).view(2, 1)
    assert (out.tag, out.label, out.shape) == (3, "a", (2, 1))
