"""The cache of FakeLikeTensor: what a signature holds, and what can be done with the plans."""

from __future__ import annotations

import threading

import pytest
import torch

from lamina import FakeLikeTensor
from lamina.subclasses.fake_like import Replays, StaleReplayError
from lamina.subclasses.fake_like.plan import Plan


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> FakeLikeTensor:
    return FakeLikeTensor.from_tensor(torch.empty(shape, dtype=dtype), device)


def test_a_second_call_is_replayed(cache: Replays) -> None:
    first = fake(2, 3) + fake(2, 3)
    second = fake(2, 3) + fake(2, 3)
    assert (cache.info().hits, cache.info().misses, len(cache)) == (1, 1, 1)
    assert first.metadata is second.metadata
    assert first is not second


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (1.0, True), (1.0, 1j), (0, False)],
)
def test_scalars_that_are_equal_are_told_apart_by_their_types(cache: Replays, one: object, other: object) -> None:
    for scalar in (one, other):
        for dtype in (torch.int32, torch.bool, torch.float32):
            assert (fake(3, dtype=dtype) * scalar).dtype == (torch.ones(3, dtype=dtype) * scalar).dtype


def test_other_floats_of_pointwise_operators_are_no_other_signature(cache: Replays) -> None:
    for step in range(5):
        fake(3).mul_(1 - 0.9**step)
    assert cache.info().misses == 1
    fake(3).sum(0)
    fake(3, 4).sum(1)
    assert cache.info().misses == 3


def test_the_default_dtype_is_part_of_the_signature(cache: Replays) -> None:
    integers = fake(3, dtype=torch.int64)
    assert (integers / 2).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert (integers / 2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_mode_is_part_of_the_signature(cache: Replays) -> None:
    values = fake(4, device="cuda")
    values.median(0)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            values.median(0)
    finally:
        torch.use_deterministic_algorithms(False)


def test_switched_off_nothing_is_remembered(cache: Replays) -> None:
    with cache.off():
        fake(2) + fake(2)
        fake(2) + fake(2)
    assert cache.info() == (0, 2, 0, cache.limit)
    fake(2) + fake(2)
    assert len(cache) == 1


def test_checked_a_hit_is_computed_again_and_a_difference_raises(cache: Replays) -> None:
    fake(2, 3).t()
    with cache.checked():
        fake(2, 3).t()
        assert cache.info().hits == 1
        (key,) = cache._plans
        cache._facts[key] = ("new", fake(7).metadata)
        with pytest.raises(
            StaleReplayError, match=r"aten\.t\.default: replayed as .*\[7\].*computed again as .*\[3, 2\]"
        ):
            fake(2, 3).t()


def test_it_can_be_looked_into_and_cleared(cache: Replays) -> None:
    fake(2, 3, device="cuda").sum(1)
    (replay,) = cache
    assert replay.op is torch.ops.aten.sum.dim_IntList
    assert "float32[2] stride (1,) on cuda:0" in str(replay.results)
    assert "float32[2, 3] stride (3, 1) on cuda:0" in str(replay.arguments)
    cache.clear()
    assert list(cache) == []
    assert cache.info() == (0, 0, 0, cache.limit)


def test_the_older_half_goes_where_there_are_too_many() -> None:
    cache, op = Replays(limit=10), type("Facts", (), {"op": "op"})()
    for number in range(11):
        cache.learn((op, number), Plan(dict.get, number))
    assert [replay.results for replay in cache] == [5, 6, 7, 8, 9, 10]
    assert cache.find((op, 0)) is None
    assert cache.find((op, 10)) is not None


def test_threads_share_it(cache: Replays) -> None:
    wrong: list[object] = []

    def work(width: int) -> None:
        for rows in range(1, 60):
            result = (fake(rows, width) @ fake(width, 3)).t()
            if (result.shape, result.stride()) != ((3, rows), (1, 3)):
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(width % 3 + 1,)) for width in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cache) == 3 * 59 + 59  # a product for each width, a transpose for all: whoever made them


def test_a_call_that_raises_is_not_remembered(cache: Replays) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="reduction dim"):
            fake(2, 3) @ fake(2, 3)
    assert len(cache) == 0


def test_calls_that_change_a_shape_are_computed_each_time(cache: Replays) -> None:
    for _ in range(3):
        changed = fake(2, 3)
        changed.t_()
        assert (changed.shape, changed.stride()) == ((3, 2), (1, 3))
        changed.resize_(5, 5)
        assert changed.shape == (5, 5)
        out = fake(0)
        torch.add(fake(4), fake(4), out=out)
        assert out.shape == (4,)
