"""OpCounter(costs=True), against arithmetic and against torch's own flop counter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.modes import OpCounter


def test_operations_and_bytes_of_a_product() -> None:
    x, w = torch.randn(3, 5), torch.randn(7, 5)
    with OpCounter(costs=True) as counter:
        x @ w.t()
    cost = counter.costs.by("op")["aten::mm"]
    assert (cost.calls, cost.flops) == (1, 2 * 3 * 5 * 7)
    assert cost.nbytes == 4 * (3 * 5 + 7 * 5 + 3 * 7)
    assert counter.costs.without_formula == {"aten::t"}


def test_a_training_step_agrees_with_torch() -> None:
    m = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5))
    x = torch.randn(3, 2, 8, 8)
    with FlopCounterMode(display=False) as torchs:
        m(x).sum().backward()
    with OpCounter(costs=True) as counter:
        m(x).sum().backward()
    assert counter.costs.total.flops == torchs.get_total_flops()
    phases = counter.costs.by("phase")
    assert phases["forward"].flops + phases["backward"].flops == torchs.get_total_flops()
    modules = counter.costs.by("module")
    linear = 2 * 3 * 144 * 5
    assert modules["2"].flops == 3 * linear  # the forward, and both gradients
    assert modules["0"].flops == torchs.get_total_flops() - 3 * linear


def test_a_wrapper_counts_once_and_its_bytes_are_those_that_it_holds() -> None:
    x, w = torch.randn(3, 5), torch.randn(7, 5)
    for wrapped, nbytes in ((LoggingTensor(w), w.nbytes), (ScaledInt8Tensor.quantize(w), 7 * 5 + 7 * 4)):
        with OpCounter(costs=True) as counter:
            F.linear(x, wrapped)
        assert counter.costs.total.flops == 2 * 3 * 5 * 7
        assert counter.costs.by("op")["aten::mm"].nbytes == x.nbytes + nbytes + 4 * 3 * 7


def test_torchs_flop_counter_is_loaded_where_something_is_counted() -> None:
    """Its import logs a line where there is no Triton: not in ``import lamina``, and not where costs are asked for."""
    script = """
import sys, torch, lamina, lamina.bench.modes
assert "torch.utils.flop_counter" not in sys.modules
with lamina.modes.OpCounter(costs=True) as counter:
    torch.ones(2, 2) @ torch.ones(2, 2)
assert counter.costs.total.flops == 2 * 2 * 2 * 2
assert "torch.utils.flop_counter" in sys.modules
"""
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert told.stderr == ""


def test_what_is_written_in_place_counts_once() -> None:
    x = torch.ones(10)
    with OpCounter(costs=True) as counter:
        x.add_(1)
    assert counter.costs.total.nbytes == 40


def test_sparse_tensors_count_their_parts() -> None:
    sparse, x = torch.eye(4).to_sparse(), torch.ones(4, 4)
    with OpCounter(costs=True) as counter:
        torch.mm(sparse, x)
    held = sparse.indices().nbytes + sparse.values().nbytes
    assert counter.costs.by("op")["aten::mm"].nbytes == held + 2 * x.nbytes


def test_dtypes() -> None:
    with OpCounter(costs=True) as counter:
        torch.ones(2, 2) @ torch.ones(2, 2)
        torch.ones(2, 2, dtype=torch.bfloat16) @ torch.ones(2, 2, dtype=torch.bfloat16)
    assert {dtype: cost.flops for dtype, cost in counter.costs.by("dtype").items()} == {"float32": 16, "bfloat16": 16}
    assert sum(each["flops"] for each in json.loads(json.dumps(counter.costs.to_json()))) == 32


def test_counts_stay_what_they_are() -> None:
    with OpCounter() as plain:
        torch.ones(2).sin()
    with OpCounter(costs=True) as counter:
        torch.ones(2).sin()
    assert plain.counts == counter.counts
    with pytest.raises(AttributeError, match="costs=True"):
        _ = plain.costs
    with pytest.raises(ValueError, match="phase, module, op, dtype"):
        counter.costs.by("shape")


def test_an_op_that_fails_is_counted_and_has_no_cost() -> None:
    with OpCounter(costs=True) as counter, pytest.raises(RuntimeError):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert counter.counts["aten::mm"] == 1
    assert "aten::mm" not in counter.costs.by("op")
