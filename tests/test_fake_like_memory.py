"""Operands in one storage: refused as real kernels refuse them, also where a call like it, in other memory, was made
before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode

aten = torch.ops.aten
Make = Callable[[torch.Tensor], torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(params=["checked", "replayed", "replayed in the mode"])
def way(request: pytest.FixtureRequest) -> Any:
    if request.param != "checked":
        request.getfixturevalue("cache")
    return FakeLikeMode if "mode" in request.param else nullcontext


def fake(real: torch.Tensor) -> torch.Tensor:
    return FakeLikeTensor.from_tensor(real)


def real(real: torch.Tensor) -> torch.Tensor:
    return real.clone()


def shifted(make: Make) -> Pair:
    both = make(torch.ones(10))
    return both[:9].view(3, 3), both[1:].view(3, 3)


def columns(make: Make) -> Pair:
    both = make(torch.ones(3, 6))
    return both[:, :3], both[:, 2:5]


def behind(make: Make) -> Pair:
    both = make(torch.ones(18))
    return both[:9].view(3, 3), both[9:].view(3, 3)


def with_its(part: Make, *shape: int) -> Callable[[Make], Pair]:
    def arranged(make: Make) -> Pair:
        whole = make(torch.ones(shape))
        return whole, part(whole)

    return arranged


# What is written to, and what is read.
ARRANGED: dict[str, Callable[[Make], Pair]] = {
    "apart": lambda make: (make(torch.ones(3, 3)), make(torch.ones(3, 3))),
    "apart, at other places": lambda make: (shifted(make)[0], shifted(make)[1]),
    "shifted": shifted,
    "itself": with_its(lambda t: t, 3, 3),
    "an alias": with_its(lambda t: t.view(3, 3), 3, 3),
    "transposed": with_its(torch.t, 3, 3),
    "columns": columns,
    "behind it": behind,
    "its row": with_its(lambda t: t[0], 3, 3),
    "its element": with_its(lambda t: t[1, 1], 3, 3),
    "empty": lambda make: (make(torch.ones(0, 3)), make(torch.ones(0, 3))),
    "itself, empty": with_its(lambda t: t, 0, 3),
}


def rows(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.size(0), dtype=torch.int64)


def places(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=torch.int64)


CALLS: dict[str, Callable[[Any, Any, Make], Any]] = {
    "add_": lambda a, b, _: a.add_(b),
    "copy_": lambda a, b, _: a.copy_(b),
    "eq_": lambda a, b, _: a.eq_(b),
    "lerp_": lambda a, b, _: a.lerp_(b, 0.5),
    "ldexp_": lambda a, b, _: a.ldexp_(b),
    "clamp_": lambda a, b, _: a.clamp_(b),
    "addcmul_": lambda a, b, make: a.addcmul_(make(torch.ones(3)), b),
    "masked_fill_": lambda a, b, make: a.masked_fill_(make(torch.ones(3, dtype=torch.bool)), b),
    "add, out": lambda a, b, _: torch.add(b, 1, out=a),
    "exp, out": lambda a, b, _: torch.exp(b, out=a),
    "where, out": lambda a, b, make: torch.where(make(torch.ones(3, dtype=torch.bool)), b, b.sum(), out=a),
    "cumsum, out": lambda a, b, _: torch.cumsum(b, 0, out=a),
    "gelu, out": lambda a, b, _: aten.gelu.out(b, out=a),
    "threshold, out": lambda a, b, _: aten.threshold.out(b, 1, 1, out=a),
    "bernoulli, out": lambda a, b, _: torch.bernoulli(b, out=a),
    "bernoulli_": lambda a, b, _: a.bernoulli_(b),
    "mvlgamma, out": lambda a, b, _: aten.mvlgamma.out(b, 1, out=a),
    "mm, out": lambda a, b, make: torch.mm(b, make(torch.ones(3, 3)), out=a),
    "tril, out": lambda a, b, _: torch.tril(b, out=a),
    "cat, out": lambda a, b, _: torch.cat([b], out=a),
    "gather, out": lambda a, b, make: torch.gather(b, 0, make(places(b)), out=a),
    "index_select, out": lambda a, b, make: torch.index_select(b, 0, make(rows(b)), out=a),
    "cross, out": lambda a, b, make: torch.linalg.cross(b, make(torch.ones(b.shape)), out=a),
    "take, out": lambda a, b, make: torch.take(b, make(places(a)), out=a),
    "scatter_": lambda a, b, make: a.scatter_(0, make(places(b)), b),
    "scatter_add_": lambda a, b, make: a.scatter_add_(0, make(places(b)), b),
    "scatter_reduce_": lambda a, b, make: a.scatter_reduce_(0, make(places(b)), b, "sum"),
    "index_add_": lambda a, b, make: a.index_add_(0, make(rows(a)), b),
    "index_copy_": lambda a, b, make: a.index_copy_(0, make(rows(a)), b),
    "index_put_": lambda a, b, make: a.index_put_((make(rows(a)),), b),
    "put_": lambda a, b, make: a.put_(make(places(b)), b),
}


# Decided by values, or by what a result is resized to; or of two errors another one comes first.
UNTOLD = {
    *[("index_select, out", "columns"), ("gather, out", "its element")],
    *[("index_copy_", "its row"), ("index_copy_", "its element")],
}


def outcome(call: Callable[[Any, Any, Make], Any], arranged: str, make: Make) -> str:
    """The kind of the error; its text, where it is of memory."""
    try:
        call(*ARRANGED[arranged](make), make)
    except Exception as error:  # noqa: BLE001 - it is compared
        text = str(error)
        return text if text.startswith("unsupported operation") else type(error).__name__
    return "done"


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", CALLS)
def test_memory_that_overlaps_is_refused_as_by_real_kernels(name: str, way: Any) -> None:
    """Each arrangement of memory after all others, of which some have the same metadata."""
    told = [arranged for arranged in ARRANGED if (name, arranged) not in UNTOLD]
    with way():
        got = {arranged: outcome(CALLS[name], arranged, fake) for arranged in told * 2}
    expected = {arranged: outcome(CALLS[name], arranged, real) for arranged in told}
    assert got == expected
    assert "done" in expected.values()


def test_the_calls_are_refused_for_their_memory() -> None:
    refused = {
        name: [arranged for arranged in ARRANGED if outcome(call, arranged, fake).startswith("unsupported")]
        for name, call in CALLS.items()
    }
    assert refused["add_"] == ["shifted", "transposed", "its row", "its element"]
    assert {"itself", "an alias", "itself, empty"} <= set(refused["index_select, out"])
    assert {name for name in CALLS if not refused[name]} == {
        "ldexp_", "mvlgamma, out", "masked_fill_", "threshold, out", "mm, out", "tril, out"
    }  # fmt: skip


# A geometry, and what it is told of: a tensor of 12 elements, or 9 of them.
GEOMETRIES = [
    ((10,), (1,), None),
    ((2, 2), (200, 1), None),
    ((3, 4), (4, 1), 0),
    ((0, 9), (99, 1), 50),
    ((2,), (1,), 11),
]
NAMED: dict[str, Callable[[Any, Any, Make], Any]] = {
    "as_strided": lambda x, geometry, _: x.as_strided(*geometry),
    "as_strided_": lambda x, geometry, _: x.as_strided_(*geometry),
    "as_strided_copy": lambda x, geometry, _: torch.as_strided_copy(x, *geometry),
    "as_strided_scatter": lambda x, geometry, make: torch.as_strided_scatter(
        x, make(torch.ones(geometry[0])), *geometry
    ),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", NAMED)
def test_a_geometry_is_inside_the_storage_or_refused(name: str, geometry: tuple[Any, ...], way: Any) -> None:
    def outcomes(make: Make) -> list[str]:
        found = []
        for size in (300, 12, 9):  # the same metadata each time, in storages that are larger and smaller
            x = make(torch.ones(size))[3:7]
            try:
                found.append(str(NAMED[name](x, geometry, make).shape))
            except RuntimeError as error:
                found.append(str(error))
        return found

    expected = outcomes(real)
    with way():
        assert outcomes(fake) == expected


def test_no_storage_is_asked_for_on_meta() -> None:
    """As by the meta device itself."""
    assert torch.ones(4, device="meta").as_strided((10,), (1,)).shape == (10,)
    assert FakeLikeTensor.from_tensor(torch.ones(4), "meta").as_strided((10,), (1,)).shape == (10,)
