from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from lamina.subclasses.logging_tensor import OpRecord, TensorMeta
from lamina.subclasses.logging_tensor.record import describe, describe_call, describe_error, describe_result, name_of

CPU = torch.device("cpu")


def meta(*shape: int, dtype: torch.dtype = torch.float32, kind: str = "Tensor") -> TensorMeta:
    return TensorMeta(shape, dtype, CPU, torch.empty(shape).stride(), kind)


def record(**changes: Any) -> OpRecord:
    fields: dict[str, Any] = {
        "index": 3,
        "name": "aten::add",
        "overload": "Tensor",
        "layer": "subclass",
        "phase": "forward",
        "inputs": (meta(2, 3), 1.5),
        "keywords": (("alpha", 2),),
        "outputs": (meta(2, 3),),
        "cls": "LoggingTensor",
    }
    return OpRecord(**{**fields, **changes})


def test_tensors_are_described_by_their_metadata() -> None:
    [described] = describe([torch.empty(2, 3, dtype=torch.int64).t()])
    assert described == TensorMeta((3, 2), torch.int64, CPU, (1, 3), "Tensor")


def test_tensors_in_lists_tuples_and_dicts_are_described() -> None:
    tensor = torch.empty(2)
    [described] = describe([[tensor, (tensor, {"key": tensor})]])
    assert described == (meta(2), (meta(2), (("key", meta(2)),)))


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (None, None),
        (True, True),
        (2, 2),
        (0.5, 0.5),
        (1 + 2j, 1 + 2j),
        ("mean", "mean"),
        (torch.float16, "float16"),
        (torch.device("meta"), "meta"),
        (torch.channels_last, "channels_last"),
        (torch.Size([2, 3]), (2, 3)),
        (object(), "<object>"),
        (slice(1), "<slice>"),
        ("x" * 1000, "x" * 200 + "..."),
    ],
)
def test_other_values_are_described_as_plain_data(value: Any, described: Any) -> None:
    assert describe([value]) == (described,)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_what_can_not_be_told_is_none() -> None:
    nested = torch.nested.nested_tensor([torch.empty(2), torch.empty(3)], layout=torch.strided)
    [described] = describe([nested])
    assert isinstance(described, TensorMeta)
    assert (described.shape, described.stride, described.dtype) == (None, None, torch.float32)


def test_a_list_that_holds_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "<...>" in str(describe([loop]))


class Hostile(torch.Tensor):
    """Every way in which describing a tensor could run its author's code raises."""

    @staticmethod
    def __new__(cls: type[Hostile]) -> Hostile:
        return torch.Tensor._make_wrapper_subclass(cls, (2, 3))  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise AssertionError("__torch_function__ was called")

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise AssertionError("__torch_dispatch__ was called")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")

    def __repr__(self) -> str:
        raise AssertionError("repr was called")

    def __iter__(self) -> Any:
        raise AssertionError("it was iterated")


class HostileList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("it was iterated")


class HostileError(RuntimeError):
    def __str__(self) -> str:
        raise AssertionError("str was called")


def test_describing_runs_no_code_of_an_author() -> None:
    [described] = describe([Hostile()])
    assert described == meta(2, 3, kind="Hostile")
    assert describe([HostileList([1, 2])]) == ((1, 2),)
    assert describe_error(HostileError("no")) == "HostileError: no"


def test_describing_calls_no_operator() -> None:
    class Refusing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, *_: Any) -> Any:
            raise AssertionError(f"{func} was called")

    class RefusingFunctions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, *_: Any) -> Any:
            raise AssertionError(f"{func} was called")

    tensor = torch.empty(2, 3)
    with Refusing(), RefusingFunctions():
        described = describe_call((tensor, [tensor]), {"out": tensor})
    assert described == ((meta(2, 3), (meta(2, 3),)), (("out", meta(2, 3)),))


def test_symbolic_sizes_are_their_text() -> None:
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.empty(5, 3), symbolic_context=context, source=ConstantSource("x"))
    [described] = describe([fake])
    assert isinstance(described, TensorMeta)
    assert described.shape is not None
    symbol, width = described.shape
    assert isinstance(symbol, str)
    assert symbol.startswith("s")
    assert width == 3
    json.dumps(described.to_json())


def test_results_are_none_one_or_several() -> None:
    tensor = torch.empty(2)
    assert describe_result(None) == ()
    assert describe_result(tensor) == (meta(2),)
    assert describe_result((tensor, 1)) == (meta(2), 1)
    assert describe_result([tensor, tensor]) == ((meta(2), meta(2)),)
    assert describe_result(torch.max(torch.empty(4, 2), dim=1)) == (meta(4), meta(4, dtype=torch.int64))
    assert describe_result(torch.Size([2])) == ((2,),)


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (torch.ops.aten.add.Tensor, ("aten::add", "Tensor")),
        (torch.ops.aten.mm.default, ("aten::mm", "default")),
        (torch.ops.aten.mm, ("aten::mm", "")),
        (torch.add, ("torch.add", "")),
        (torch.Tensor.add, ("torch.Tensor.add", "")),
        (torch.Tensor.backward, ("torch.Tensor.backward", "")),
        (torch.Tensor.shape.__get__, ("torch.Tensor.shape", "")),  # type: ignore[attr-defined]
        (torch.Tensor.grad.__set__, ("torch.Tensor.grad", "__set__")),  # type: ignore[attr-defined]
        (torch.nn.functional.linear, ("torch.nn.functional.linear", "")),
        (torch.nn.functional.relu, ("torch.nn.functional.relu", "")),
        (torch.fft.fft, ("torch.fft.fft", "")),
        (torch.linalg.inv, ("torch.linalg.inv", "")),
    ],
)
def test_names_are_those_that_users_write(func: Any, name: tuple[str, str]) -> None:
    assert name_of(func) == name


def test_a_record_becomes_json_of_plain_types() -> None:
    odd = record(inputs=(meta(2), float("nan"), float("inf"), 1j, (1, None)), error="ValueError: no")
    plain = json.loads(json.dumps(odd.to_json(), allow_nan=False))
    assert plain["inputs"][0] == {
        "shape": [2],
        "dtype": "float32",
        "device": "cpu",
        "stride": [1],
        "class": "Tensor",
    }
    assert plain["inputs"][1:] == ["nan", "inf", "1j", [1, None]]
    assert (plain["failed"], plain["error"], plain["compiled"]) == (True, "ValueError: no", False)
    assert plain["keywords"] == {"alpha": 2}


def test_the_text_of_a_record_has_no_times() -> None:
    assert str(record(start_ns=1, duration_ns=2)) == str(record(start_ns=3, duration_ns=4))
    assert str(record(depth=1, module="encoder.0")) == (
        "  aten::add.Tensor(float32[2, 3], 1.5, alpha=2) -> float32[2, 3]"
        "  [forward subclass LoggingTensor in encoder.0]"
    )
    assert "!! ValueError: no" in str(record(error="ValueError: no", outputs=()))


def test_records_are_values() -> None:
    assert record() == record()
    assert hash(record()) == hash(record())
    with pytest.raises(AttributeError):
        record().index = 4  # type: ignore[misc]
    assert not hasattr(record(), "__dict__")


def test_derived_facts() -> None:
    assert record().op == "aten::add.Tensor"
    assert record(overload="default").op == "aten::add"
    assert not record().failed
    assert record(error="E").failed
    assert record(layer="compiled").compiled
