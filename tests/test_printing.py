"""repr, str and format: the fields, what a plain tensor's repr would add, and no op on the class itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Granularity, Scaled, Sum, Tagged, nest
from torch.autograd import forward_ad

from lamina import DataDependentError, Kind, PerBlock, PlainOnlyError, ScaledInt8Tensor, WrapperTensor, op_table, strict


def ops_run_by(cls: Any, call: Any) -> int:
    before = sum(entry.hits for entry in op_table(cls))
    call()
    return sum(entry.hits for entry in op_table(cls)) - before


def test_repr_shows_class_and_fields() -> None:
    assert repr(Clear(torch.tensor([1.0, 2.0]))) == "Clear(elem=tensor([1., 2.]))"
    assert repr(Tagged(torch.tensor([1.0]), 3, "x")) == "Tagged(elem=tensor([1.]), tag=3, label='x')"
    assert "granularity=<Granularity.TENSOR" in repr(Scaled(torch.ones(1), torch.ones(1), Granularity.TENSOR))
    assert "payload=" in repr(Scaled(torch.ones(1), torch.ones(1)))
    text = repr(Sum((torch.ones(1), torch.zeros(1)), torch.ones(1)))
    assert text == "Sum(parts=(tensor([1.]), tensor([0.])), bias=tensor([1.]))"
    assert "bias" not in repr(Sum((torch.ones(1),)))


def test_str_and_empty_format_are_the_repr() -> None:
    w = Clear(torch.ones(2))
    assert str(w) == f"{w}" == repr(w)
    assert f"{w!s:>3}" == str(w)


STATES: dict[str, Any] = {
    "leaf": (lambda: Clear(torch.ones(2)).requires_grad_(), "requires_grad=True"),
    "result": (lambda: Clear(torch.ones(2)).requires_grad_() * 2, "grad_fn=<MulBackward0>"),
    "view": (lambda: Clear(torch.ones(2, 2)).requires_grad_().t(), "grad_fn=<TBackward0>"),
    "from_plain": (lambda: Clear.from_plain(torch.ones(2, requires_grad=True)), "grad_fn=<"),
    "parameter": (lambda: torch.nn.Parameter(Clear(torch.ones(2))), "Parameter containing:\nClear("),
    "frozen parameter": (
        lambda: torch.nn.Parameter(Clear(torch.ones(2)), requires_grad=False),
        "Parameter containing:",
    ),
    "meta": (lambda: Clear(torch.ones(2, device="meta")), "device='meta'"),
    "nested": (lambda: nest(Clear, torch.ones(1), 3), "Clear(elem=Clear(elem=Clear(elem=tensor([1.]))))"),
    "nested parameter": (
        lambda: torch.nn.Parameter(nest(Clear, torch.ones(1), 2)),
        "Parameter containing:\nClear(elem=Clear(",
    ),
    "0-d": (lambda: Clear(torch.tensor(2.5)), "Clear(elem=tensor(2.5000))"),
    "empty": (lambda: Clear(torch.ones(0, 3)), "Clear(elem=tensor([], size=(0, 3)))"),
    "complex": (lambda: Clear(torch.tensor([1j])), "1.j"),
    "conj": (lambda: Clear(torch.tensor([1j])).conj(), "-1.j"),
    "int8": (lambda: Clear(torch.ones(1, dtype=torch.int8)), "dtype=torch.int8"),
    "nan": (lambda: Clear(torch.tensor([float("nan")])), "nan"),
}


@pytest.mark.parametrize("state", STATES)
def test_repr_in_every_state(state: str) -> None:
    make, part = STATES[state]
    w = make()
    assert part in repr(w)
    assert ops_run_by(Clear, lambda: (repr(w), str(w), f"{w}")) == 0, "repr never runs an op on the class"


def test_repr_runs_no_op_of_decoding_classes_and_works_under_strict() -> None:
    for w in (Doubled(torch.ones(2)), Scaled.from_plain(torch.ones(2, 2)), Sum((torch.ones(2),))):
        for value in (w, torch.nn.Parameter(w.detach())):
            with strict():
                assert type(w).__name__ in repr(value)
            assert ops_run_by(type(w), lambda v=value: repr(v)) == 0


def test_repr_of_a_class_whose_every_rule_fails() -> None:
    class Broken(WrapperTensor):
        elem: torch.Tensor

    @Broken.implements(*Kind)
    def fail(op: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError("repr ran an op")

    w = Broken(torch.ones(2))
    assert repr(w) == "Broken(elem=tensor([1., 1.]))"
    assert "requires_grad=True" in repr(w.requires_grad_())


def test_repr_under_modes() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    with torch.no_grad():
        assert "requires_grad=True" in repr(w)
    with torch.inference_mode():
        assert repr(w)
        assert repr(Clear(torch.ones(2)))
        assert repr(w + 1)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert "FakeTensor" in repr(Clear(torch.ones(2)))


def test_repr_inside_a_dispatch_mode_that_forbids_everything() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.extend(t for t in types if issubclass(t, WrapperTensor))
            return func(*args, **(kwargs or {}))

    w = Clear(torch.ones(2))
    with Watch():
        repr(w)
    assert seen == []


def test_repr_of_module_and_state_dict() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    assert "Linear(in_features=2" in repr(layer)
    assert "Clear(" in repr(layer.state_dict())
    assert "Parameter containing" in repr(torch.nn.ParameterList([layer.weight]))


def test_a_repr_of_the_author_is_left_alone() -> None:
    class Own(Clear):
        def __repr__(self, *, tensor_contents: Any = None) -> str:
            return "mine"

    assert repr(Own(torch.ones(1))) == str(Own(torch.ones(1))) == "mine"


@pytest.mark.parametrize("make", [Clear, Doubled.from_plain, lambda t: nest(Clear, t, 2), lambda t: Sum((t,))])
def test_format_of_numbers(make: Any) -> None:
    w = make(torch.tensor(3.14159))
    assert f"{w:.2f}" == "3.14"
    assert f"{w:>8.3f}" == "   3.142"
    assert f"{make(torch.tensor(2.0)):.1e}" == "2.0e+00"
    assert f"{w.requires_grad_():.4f}" == "3.1416"
    with pytest.raises(TypeError, match="format"):
        format(make(torch.ones(2)), ".2f")


def test_values_to_python() -> None:
    for make in (Clear, Doubled.from_plain, lambda t: nest(Clear, t, 3)):
        w = make(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        assert w.tolist() == [[1, 2], [3, 4]]
        assert w.detach().numpy().tolist() == [[1, 2], [3, 4]]
        assert w[0, 1].item() == 2
        import numpy as np

        assert np.asarray(w).tolist() == [[1, 2], [3, 4]]
        assert np.array(w, dtype=np.float64).dtype == np.float64
        with pytest.raises(RuntimeError):
            w.item()
    assert Clear(torch.tensor(5)).tolist() == 5
    assert Clear(torch.tensor([True, False])).tolist() == [True, False]


def test_numpy_of_a_tensor_that_requires_grad_is_refused_as_for_plain() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    with pytest.raises(RuntimeError, match="detach"):
        w.numpy()
    assert w.numpy(force=True).tolist() == [1, 1]
    assert w.tolist() == [1, 1]


def test_meta_values_are_refused_clearly() -> None:
    w = Clear(torch.ones(2, device="meta"))
    for call in (w.tolist, w.numpy, lambda: w.sum().item()):
        with pytest.raises(
            (NotImplementedError, RuntimeError, TypeError, DataDependentError, PlainOnlyError), match=r"(?i)meta"
        ):
            call()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_repr_shows_the_tangent_of_a_dual_tensor_and_runs_no_op_of_the_class() -> None:
    for make in (Clear, Doubled.from_plain):
        w = make(torch.tensor([4.0]))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(w, torch.tensor([0.5]))
            assert repr(dual).endswith(", tangent=tensor([0.5000]))")
            assert "tangent" not in repr(w)
            assert ops_run_by(type(w), lambda dual=dual: repr(dual)) == 0
        assert "tangent" not in repr(dual)


def test_large_inner_tensors_are_summarized_unless_the_program_asks_for_more() -> None:
    wrapped = ScaledInt8Tensor.quantize(torch.randn(64, 64), granularity=PerBlock((2, 4)))
    assert len(repr(wrapped)) < 1500
    assert "..." in repr(Clear(torch.arange(101)))
    assert "..." not in repr(Clear(torch.arange(100)))
    torch.set_printoptions(threshold=2000)
    try:
        assert "..." not in repr(Clear(torch.arange(1500)))
        assert repr(torch.arange(1500)) in repr(Clear(torch.arange(1500)))
    finally:
        torch.set_printoptions(profile="default")
