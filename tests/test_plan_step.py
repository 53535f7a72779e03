"""plan_step: bytes by what they are, worked out by hand; where the peak is; what goes wrong."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lamina
from lamina.modes import FakeLikeMode
from lamina.modes.plan import CATEGORIES

IN, OUT, BATCH = 100, 30, 50
WEIGHT = 4 * IN * OUT  # bytes, as all below


def linear_step(optimizer: str = "AdamW") -> None:
    model = nn.Linear(IN, OUT, bias=False)
    trainer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    model(torch.empty(BATCH, IN)).sum().backward()
    trainer.step()


def test_adamw_by_hand() -> None:
    plan = lamina.plan_step(linear_step)
    # After the forward's tensors are gone: the update needs sqrt(exp_avg_sq), and that divided by a number.
    assert plan.by_category == {
        "parameters": WEIGHT,
        "gradients": WEIGHT,
        "optimizer state": 2 * WEIGHT + 4,  # exp_avg, exp_avg_sq, and the step's number
        "inputs and buffers": 0,
        "activations": 0,
        "temporaries": 2 * WEIGHT,
    }
    assert plan.peak_bytes == 6 * WEIGHT + 4 == plan.asked_bytes
    assert plan.peak.step is not None
    assert (plan.peak.step.op, plan.peak.step.phase) == ("aten::div.Tensor", "optimizer")
    assert plan.at_end == dict.fromkeys(CATEGORIES, 0)


def test_on_a_gpu_all_parameters_are_updated_at_once() -> None:
    plan = lamina.plan_step(linear_step, device="cuda")
    assert plan.device == torch.device("cuda:0")
    assert "aten::_foreach_sqrt" in [step.op for step in plan.steps]
    assert plan.by_category["temporaries"] == WEIGHT  # one for all parameters, then in place
    assert plan.elsewhere["cpu"] >= 4  # the step's number stays there


def test_activations_are_what_the_backward_uses() -> None:
    def step() -> None:
        model = nn.Sequential(nn.Linear(IN, OUT, bias=False), nn.ReLU(), nn.Linear(OUT, 1, bias=False))
        batch = torch.empty(BATCH, IN)
        model(batch).sum().backward()

    plan = lamina.plan_step(step)
    hidden, last = 4 * BATCH * OUT, 4 * OUT
    # The gradient of the hidden units is made while the ReLU's result is there; the first linear layer's is dead.
    threshold = next(m for m in plan.moments if plan.steps[m.number].op == "aten::threshold_backward")
    found = dict(zip(CATEGORIES, threshold.nbytes, strict=True))
    assert found["parameters"] == WEIGHT + last
    assert found["gradients"] == last
    assert found["activations"] == hidden + 4  # the ReLU's result; and the 1 that the backward begins with
    assert found["inputs and buffers"] == 4 * BATCH * IN
    assert found["temporaries"] == 2 * hidden + 4  # and the loss


def test_the_peak_names_operator_module_phase_and_line() -> None:
    model_line = 0

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(10, 10_000, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.wide(x)

    def step() -> None:
        model = Model()
        model(torch.empty(BATCH, 10)).sum()

    plan = lamina.plan_step(step)
    assert plan.peak.step is not None
    highest = next(s for s in plan.steps if s.op == "aten::mm")
    assert (highest.phase, highest.module) == ("forward", "wide")
    site = highest.site or ""
    assert site.rpartition(":")[0] == __file__
    assert "return self.wide(x)" in Path(__file__).read_text().splitlines()[int(site.rpartition(":")[2]) - 1]
    assert model_line == 0


def test_the_line_that_asks_for_a_plan_is_no_place_in_the_step() -> None:
    with FakeLikeMode():
        model, batch = nn.Linear(IN, OUT), torch.empty(BATCH, IN)
    plan = lamina.plan_step(functools.partial(model, batch))
    assert [step.site for step in plan.steps] == [None] * len(plan.steps)
    assert len(plan.steps) >= 2


def test_gradients_that_autograd_adds_up_are_added_in_place_as_for_plain_tensors() -> None:
    def step() -> None:
        x = torch.empty(1000, requires_grad=True)
        (x * 2 + x * 3).sum().backward()

    plan = lamina.plan_step(step)
    adding = next(m for m in plan.moments if plan.steps[m.number].op == "aten::add.Tensor" and m.number > 4)
    assert plan.steps[adding.number].phase == "backward"
    # x, the result of both products is gone; two gradients, and no third for their sum
    assert adding.total == 4000 + 4 * 2 + 8000


def test_what_a_formula_adds_up_itself_is_a_new_tensor() -> None:
    class Five(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: Tensor) -> Any:
            return gradient * 2 + gradient * 3

    def step() -> None:
        x = torch.empty(1000, requires_grad=True)
        Five.apply(x).sum().backward()

    plan = lamina.plan_step(step)
    assert plan.peak_bytes == 4000 + 3 * 4000 + 8  # x, two products, their sum; the loss and its gradient


def test_parameters_and_buffers_show_where_nothing_uses_them() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.empty(OUT, IN))
            self.register_buffer("places", torch.empty(70).add(1))

    plan = lamina.plan_step(Model)
    assert plan.by_category["parameters"] == WEIGHT
    assert plan.at_end["parameters"] == WEIGHT  # it is what the step returns
    assert plan.at_end["inputs and buffers"] == 280


def test_storages_that_grow() -> None:
    def step() -> None:
        x = torch.empty(10)
        x.resize_(1000)
        x.add_(1)

    plan = lamina.plan_step(step)
    assert plan.moments[-1].total == plan.peak_bytes == 4000


def test_what_was_there_before_counts_from_the_start() -> None:
    with FakeLikeMode():
        model, unused = nn.Linear(IN, OUT), nn.Linear(OUT, OUT, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batch = torch.empty(BATCH, IN)
        model.register_buffer("kept", torch.empty(7))

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        assert unused is not None

    first = lamina.plan_step(step).moments[0]
    assert first.number == -1
    assert first.nbytes == (WEIGHT + 4 * OUT + 4 * OUT * OUT, 0, 0, 4 * BATCH * IN + 28, 0, 0)
    again = lamina.plan_step(step)
    assert again.moments[0].nbytes[1:3] == (WEIGHT + 4 * OUT, WEIGHT + 4 * OUT)  # gradients and momentum stay
    assert lamina.plan_step(functools.partial(model, batch)).moments[0].nbytes[0] == WEIGHT + 4 * OUT
    assert lamina.plan_step(lambda: None, known=[unused]).peak_bytes == 4 * OUT * OUT


def test_models_and_batches_with_data() -> None:
    model, batch = nn.Linear(IN, OUT, bias=False), torch.ones(BATCH, IN)
    with pytest.raises(lamina.RealTensorError):
        lamina.plan_step(lambda: model(batch))
    lamina.fake_like(model)
    plan = lamina.plan_step(lambda: model(batch).sum().backward(), convert=True)
    assert plan.moments[0].nbytes[0] == WEIGHT
    assert plan.by_category["gradients"] == WEIGHT
    assert plan.by_category["inputs and buffers"] == 4 * BATCH * IN  # once


def test_checkpointing_keeps_less_and_computes_more() -> None:
    def step(*, again: bool) -> None:
        blocks = [nn.Sequential(nn.Linear(IN, IN), nn.GELU(), nn.Linear(IN, IN)) for _ in range(6)]
        x = torch.empty(1000, IN)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False) if again else block(x)
        x.sum().backward()

    plain, less = (lamina.plan_step(functools.partial(step, again=again)) for again in (False, True))
    activation = 4 * 1000 * IN
    assert plain.by_category["activations"] >= 12 * activation
    assert less.by_category["activations"] <= 9 * activation
    forward = 2 * 2 * 1000 * IN * IN * 6
    assert plain.flops_by("phase") == {"forward": forward, "backward": 2 * forward - 2 * 1000 * IN * IN}
    # what it computes anew counts as backward; the last product of a block is not needed again
    assert less.flops_by("phase")["backward"] > plain.flops_by("phase")["backward"] + forward // 3


def test_the_optimizers_state_of_the_second_step_is_there_in_its_forward() -> None:
    def step() -> None:
        model = nn.Linear(IN, OUT, bias=False)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.empty(BATCH, IN)).sum().backward()
            optimizer.step()

    plan = lamina.plan_step(step)
    state = CATEGORIES.index("optimizer state")
    products = [m.nbytes[state] for m in plan.moments if plan.steps[m.number].op == "aten::mm"]
    assert products[:1] == [0]
    assert products[-1] == 2 * WEIGHT + 4


def test_no_data_is_made_and_no_random_number_drawn() -> None:
    state = torch.get_rng_state()

    def step() -> None:
        layer = nn.Linear(100_000, 1_000_000, device="cuda:7")  # 400 GB
        F.dropout(layer(torch.randn(10, 100_000, device="cuda:7"))).sum().backward()

    plan = lamina.plan_step(step)
    assert plan.device == torch.device("cuda:7")
    assert plan.peak_bytes > 800 * 10**9
    assert torch.equal(torch.get_rng_state(), state)


def test_a_step_that_raises_hands_over_the_plan_so_far() -> None:
    def step() -> None:
        model = nn.Linear(IN, OUT)
        model(torch.empty(BATCH, IN + 1))

    with pytest.raises(RuntimeError, match=r"reduction dim|mat1") as raised:
        lamina.plan_step(step)
    plan = raised.value.plan  # type: ignore[attr-defined]
    assert plan.by_category["parameters"] == WEIGHT + 4 * OUT
    assert plan.error.startswith("RuntimeError: ")
    assert "ended early" in plan.summary()
    lamina.plan_step(linear_step)  # nothing is left switched on


def test_a_step_that_needs_values_says_where() -> None:
    def step() -> None:
        if torch.empty(3).sum() > 0:
            raise AssertionError

    with pytest.raises(lamina.DataDependentError, match=r"test_plan_step\.py:\d+ needs values"):
        lamina.plan_step(step)


def test_unknown_devices_and_allocators() -> None:
    with pytest.raises(lamina.UnknownDeviceError, match="h200, h100, a100, l4, cpu"):
        lamina.plan_step(linear_step, device="b9000")
    with pytest.raises(ValueError, match="'buddy': it is 'caching'"):
        lamina.plan_step(linear_step, allocator="buddy")  # type: ignore[arg-type]


def test_it_fits_or_not() -> None:
    def step(gigabytes: int) -> Callable[[], Tensor]:
        return lambda: torch.empty(gigabytes * 10**9, dtype=torch.uint8)

    small = lamina.plan_step(step(20), device="L4", allocator="caching")
    assert (small.fits, small.missing_bytes) == (True, 20_000_538_624 - 24 * 10**9)  # a segment of whole 2 MiB
    large = lamina.plan_step(step(25), device="l4")
    assert (large.fits, large.missing_bytes) == (False, 10**9)
    assert "does not fit by 1.00 GB on NVIDIA L4, 24.00 GB" in large.summary()
    assert lamina.plan_step(step(25)).fits is None


def test_json_has_all_of_it(tmp_path: Path) -> None:
    plan = lamina.plan_step(linear_step, device="h100", allocator="caching")
    data = json.loads(json.dumps(plan.to_json()))
    assert data["peak_bytes"] == plan.peak_bytes == sum(data["by_category"].values())
    assert data["peak_op"]["op"] == "aten::_foreach_sqrt"
    assert max(sum(line[4:]) for line in data["time_line"]) == plan.peak_bytes
    assert data["hardware"]["source"]
    assert data["seconds_at_best"].keys() == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize("name", ["plan.png", "plan.svg"])
def test_plot(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    lamina.plan_step(linear_step, device="cuda").plot(path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    if name.endswith("svg"):
        assert b"bytes of tensors alive on cuda:0 (kB)" in content or len(content) > 10_000


def test_summary_and_repr() -> None:
    plan = lamina.plan_step(linear_step, device="h200")
    text = str(plan)
    assert text == plan.summary()
    assert text.startswith("peak 60.00 kB (60,000 bytes) on cuda:0, at aten::_foreach_sqrt, optimizer")
    assert "estimate, at best:" in text
    assert "fits: 141.00 GB to spare" in text
    assert repr(plan).startswith("<Plan: peak 60,000 bytes on cuda:0")


def test_an_empty_step() -> None:
    plan = lamina.plan_step(lambda: None)
    assert (plan.peak_bytes, plan.flops, plan.steps) == (0, 0, [])
    assert plan.summary().startswith("peak 0 bytes")
    assert "0 FLOP: none" in plan.summary()
