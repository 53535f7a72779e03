"""``to`` and its kin take what torch's take, and refuse what those refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def outcome(move: Callable[[torch.Tensor], Any]) -> Any:
    source = ones(2, 3).t()
    try:
        moved = move(source)
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error)
    if not isinstance(moved, torch.Tensor):
        return moved
    return tuple(moved.shape), moved.stride(), moved.dtype, moved.device, moved is source, moved._is_view()


def named(**kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (), kwargs


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *[((value,), {}) for value in (float, int, bool, complex, 3.5, True, None, [1], ..., "float32", "cpu")],
    *[((value,), {}) for value in (torch.int8, torch.float32, torch.contiguous_format, np.float64(2), ("cpu", int))],
    *[(("cpu", value), {}) for value in (float, int, True, None, torch.int8, "cpu")],
    *[((torch.int8, *rest), {}) for rest in ((True,), (True, True), (True, 1), ("cpu",), (False, False, None))],
    *[(("cpu", torch.int8, *rest), {}) for rest in ((True,), (True, True), (3,), (True, True, True))],
    *[((None, torch.int8), {}), (("cpu",), {"device": "cpu"}), ((torch.int8,), {"dtype": torch.int8}), ((), {})],
    *[named(dtype=float), named(device="cpu", dtype=int), named(device=None, dtype=torch.int8), named(copy=True)],
    *[
        named(copy=1),
        (("cpu", None, True, True), {"copy": True}),
        named(non_blocking="x"),
        named(layout=torch.strided),
        named(foo=1),
        named(memory_format=None),
    ],
    *[named(memory_format=torch.contiguous_format), named(memory_format=torch.channels_last)],
    *[((torch.float32,), {"copy": True}), (("cpu", torch.float64), {"memory_format": torch.contiguous_format})],
]


@pytest.mark.parametrize(("args", "kwargs"), GIVEN, ids=str)
def test_to_takes_what_torch_takes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    expected = outcome(lambda source: source.to(*args, **kwargs))
    with FakeLikeMode("cpu"):
        assert outcome(lambda source: source.to(*args, **kwargs)) == expected


def test_to_takes_a_tensor() -> None:
    for rest in ((), (True,), (True, True), (1,)):
        expected = outcome(lambda source, rest=rest: source.to(ones(1, dtype=torch.int8), *rest))  # type: ignore[misc]
        with FakeLikeMode("cpu"):
            assert outcome(lambda source, rest=rest: source.to(ones(1, dtype=torch.int8), *rest)) == expected  # type: ignore[misc]
    other = FakeLikeTensor.from_tensor(ones(1), "cuda:2")
    for moved in (FakeLikeTensor.from_tensor(ones(3)).to(other), FakeLikeTensor.from_tensor(ones(3)).to(tensor=other)):
        assert str(moved.device) == "cuda:2"


def test_a_number_is_a_tensor_on_the_cpu() -> None:
    moved = FakeLikeTensor.from_tensor(ones(3), "cuda").to(3.5)
    assert (str(moved.device), moved.dtype) == ("cpu", torch.float64)
    assert str(FakeLikeTensor.from_tensor(ones(3)).to(1).device) == "cuda:1"


TYPES: dict[str, Callable[[torch.Tensor], Any]] = {
    **{
        f"type({name!r})": lambda source, name=name: source.type(name)  # type: ignore[misc]
        for name in ("torch.ComplexFloatTensor", "torch.HalfTensor", "torch.FooTensor", float, torch.int8, None)
    },
    "type_as a number": lambda source: source.type_as(3),
    "type_as": lambda source: source.type_as(ones(1, dtype=torch.int8)),
    "new_tensor of one": lambda source: source.new_tensor(ones(2, dtype=torch.int8)),
    "new_tensor with a dtype": lambda source: source.new_tensor(ones(2), dtype=int),
    "is_shared": lambda source: source.is_shared(),
    "share_memory_": lambda source: source.clone().share_memory_().is_shared(),
}


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("name", TYPES)
def test_conversions_take_what_torch_takes(name: str) -> None:
    expected = outcome(TYPES[name])
    with FakeLikeMode("cpu"):
        assert outcome(TYPES[name]) == expected
