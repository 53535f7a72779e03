"""The GPU's clock. Its order of work is checked with a stand-in for torch.cuda; the real one needs a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lamina.bench import cuda_clock
from lamina.bench.cuda_clock import CudaStopwatch, cuda_device
from lamina.bench.timing import Settings, Variant, measure

L2 = 4096


class Gpu:
    """Events happen in the order in which they are recorded; what is between two of them takes what work says."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.sizes: list[int] = []
        self.now = 0.0

    def event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        made = SimpleNamespace(at=None)

        def record() -> None:
            made.at = self.now
            self.said.append("record")

        def elapsed_time(end: Any) -> float:
            assert self.said[-1] == "synchronize"
            return float(end.at - made.at)

        made.record, made.elapsed_time = record, elapsed_time
        return made

    def work(self, milliseconds: float) -> None:
        self.now += milliseconds
        self.said.append("work")

    def flush(self) -> None:
        self.now += 1000
        self.said.append("flush")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()

    def empty(size: int, **_: object) -> Any:
        made.sizes.append(size)
        return SimpleNamespace(zero_=made.flush)

    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: made.said.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=L2))
    monkeypatch.setattr(torch, "empty", empty)
    return made


def test_each_call_is_between_events_after_a_flush_that_is_not_timed(gpu: Gpu) -> None:
    stopwatch = CudaStopwatch(torch.device("cuda"))
    assert stopwatch(Variant("work", gpu.work, (0.25,)), 3) == 750_000
    assert gpu.said == ["synchronize", *["flush", "record", "work", "record"] * 3, "synchronize"]
    assert gpu.sizes == [2 * L2]


def test_variants_with_cuda_tensors_are_timed_by_it(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.bench.timing.cuda_device", lambda _: torch.device("cuda"))
    variants = [Variant("one", gpu.work, (1,)), Variant("other", gpu.work, (2,))]
    measured = measure(variants, Settings(rounds=5, loop_ns=2_000_000), [("other", "one")])
    assert (measured.time("one").median, measured.ratio("other", "one").median) == (1e6, 2)


def test_without_cuda_tensors_the_host_is_timed() -> None:
    assert cuda_device([Variant("host", torch.add, (torch.ones(2), {"deep": [torch.ones(2)]}))]) is None


class Claiming(torch.Tensor):
    """In Python it claims to be on a GPU, as tensors without data do."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


def claim_in_python() -> torch.Tensor:
    return torch.ones(2).as_subclass(Claiming)


def claim_in_a_fake_mode() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(2, device="cuda")


@pytest.mark.parametrize("claim", [claim_in_python, claim_in_a_fake_mode])
def test_a_tensor_that_only_claims_a_gpu_is_on_none(claim: Callable[[], torch.Tensor]) -> None:
    claiming = claim()
    assert claiming.device.type == "cuda"
    assert cuda_device([Variant("fake", torch.add, (claiming, claiming))]) is None


def test_several_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter(["cuda:0", "cpu", "cuda:1"])
    monkeypatch.setattr(cuda_clock, "_real_device", lambda _: torch.device(next(places)))
    with pytest.raises(ValueError, match=r"several CUDA devices.*'cuda:0', 'cuda:1'"):
        cuda_device([Variant("both", max, (torch.ones(1),) * 3)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="times a GPU, and there is none")
def test_a_larger_product_takes_a_gpu_longer() -> None:
    small, large = (torch.ones(size, size, device="cuda") for size in (256, 4096))
    variants = [Variant("small", torch.mm, (small, small)), Variant("large", torch.mm, (large, large))]
    assert cuda_device(variants) == small.device
    measured = measure(variants, Settings(rounds=5))
    assert measured.ratios("large", "small") > [1.0] * 5
