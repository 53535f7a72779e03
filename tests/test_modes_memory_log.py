"""MemoryLog, against what is there by arithmetic, and against the profiler's memory events."""

from __future__ import annotations

import gc
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.modes import MemoryLog

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_follow_what_lives(dtype: torch.dtype) -> None:
    size = torch.empty(0, dtype=dtype).element_size()
    with MemoryLog() as memory:
        x = torch.zeros(100, dtype=dtype)
        y = x.clone()
        assert memory.live_bytes == 200 * size
        del x
        assert memory.live_bytes == 100 * size
    assert (memory.peak_bytes, memory.live_bytes) == (200 * size, 100 * size)
    del y
    gc.collect()
    assert memory.live_bytes == 0


def test_views_and_in_place_ops_take_no_memory() -> None:
    with MemoryLog() as memory:
        x = torch.zeros(8, 4)
        views = [x.t(), x[1:], x.view(4, 8), x.detach(), *x.split(2), x.expand(3, 8, 4)]
        x.add_(1).mul_(2)
        del x
    assert memory.peak_bytes == memory.live_bytes == 128
    assert len(views) == 9


def test_what_comes_from_outside_is_counted_once_it_is_seen_or_from_the_start() -> None:
    x, m = torch.zeros(10), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    m(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    with MemoryLog(m, optimizer, {"x": [x]}) as memory:
        assert memory.live_bytes == memory.peak_bytes == 40 + 3 * 32  # parameters, gradients, momentum
    with MemoryLog() as memory:
        assert memory.live_bytes == 0
        y = x + 1
    assert memory.now().by_phase == {"before": 40, "forward": 40}
    assert y.shape == (10,)


def test_wrappers_count_by_their_inner_storages_each_once() -> None:
    q = ScaledInt8Tensor.quantize(torch.randn(16, 8))
    nested = LoggingTensor(q)
    with MemoryLog(q, nested, [q.t()]) as memory:
        pass
    assert memory.live_bytes == 16 * 8 + 16 * 4


def test_phases_and_modules() -> None:
    m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(m.parameters())
    x = torch.randn(5, 8)
    with MemoryLog(m, x) as memory:
        out = m(x)
        by_module = dict(memory.now().by_module)
        out.sum().backward()
        after = memory.now()
        optimizer.step()
    assert by_module["1"] == 5 * 16 * 4
    assert by_module["2"] == 5 * 4 * 4
    assert "0" not in by_module  # relu keeps its result for the backward, and nobody what it was given
    parameters = sum(p.nbytes for p in m.parameters())
    assert after.by_phase["backward"] >= parameters
    assert memory.now().by_phase["optimizer"] >= 2 * parameters
    assert memory.peak.op is not None
    assert json.loads(json.dumps(memory.to_json()))["peak"]["bytes"] == memory.peak_bytes
    assert f"peak {memory.peak_bytes:,} bytes" in str(memory)


def test_the_live_bytes_are_those_of_the_allocator() -> None:
    """The profiler's events, but for the scratch memory of kernels: of element-wise ops there is none."""
    from torch.profiler import profile

    def run() -> torch.Tensor:
        x = torch.ones(1000)
        y = (x * 2).relu()
        return (y + x).sum()

    with profile(profile_memory=True, acc_events=True) as seen:
        run()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in events:
        live += event.nbytes()
        peak = max(peak, live)
    with MemoryLog() as memory:
        run()
    assert peak == memory.peak_bytes


def test_resized_storages() -> None:
    x = torch.zeros(100)
    with MemoryLog(x) as memory:
        x.untyped_storage().resize_(0)
        torch.ones(1).add_(1)
        x.untyped_storage().resize_(400)
        x.fill_(1)
        assert memory.now().by_phase["before"] == 400
    x.untyped_storage().resize_(0)
    with MemoryLog(x) as memory:
        assert memory.live_bytes == 0


def test_sparse_tensors_count_their_parts() -> None:
    with MemoryLog(torch.eye(4).to_sparse()) as memory:
        pass
    assert memory.live_bytes == 0  # it is gone already
    x = torch.eye(4).to_sparse()
    with MemoryLog(x) as memory:
        assert memory.live_bytes == 4 * 4 + 2 * 4 * 8


def test_a_failing_op_leaves_the_count_right() -> None:
    x = torch.ones(3)
    with MemoryLog(x) as memory, pytest.raises(RuntimeError):
        F.linear(x, torch.ones(2, 2))
    gc.collect()
    assert memory.live_bytes == 12
