"""Kernels' scratch memory: the estimate against what the CPU allocator gave out; how a plan tells it apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_plan_memory import images, silent, train
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import lamina
from lamina.modes.plan import Device
from lamina.modes.plan.convolutions import Convolution, by_onednn

ON_AVX512 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="other processors block channels otherwise"
)
SHAPES = {
    "plain": {},
    "odd channels": {"channels": 20, "made": 40},
    "images": {"channels": 3, "window": 7, "padding": 3},
    "strided": {"stride": 2},
    "dilated": {"dilation": 2, "padding": 2},
    "depthwise": {"channels": 48, "made": 48, "groups": 48},
    "grouped": {"groups": 4},
    "grouped, odd": {"channels": 40, "made": 40, "groups": 4},
    "1x1": {"batch": 16, "window": 1, "padding": 0},
    "no batch": {"batch": 1, "channels": 8, "made": 16},
    "channels last": {"layout": torch.channels_last},
    "double": {"dtype": torch.float64},
}


def layer(
    *,
    batch: int = 8,
    channels: int = 64,
    made: int = 64,
    window: int = 3,
    padding: int = 1,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    layout: torch.memory_format = torch.contiguous_format,
    dtype: torch.dtype = torch.float32,
) -> tuple[Callable[..., Tensor], Tensor]:
    """A convolution, and what it is given."""
    geometry = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}
    made_layer = nn.Conv2d(channels, made, window, **geometry, dtype=dtype).to(memory_format=layout)  # type: ignore[call-overload]
    return made_layer, torch.randn(batch, channels, 32, 32, dtype=dtype).to(memory_format=layout)


def thin() -> nn.Module:
    """Where a convolution's copies are what takes the most."""
    first = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3, padding=1)]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 50))


def step(shape: dict[str, Any], *, backward: bool) -> None:
    convolve, x = layer(**shape)
    if not backward:
        with torch.no_grad():
            convolve(x)
        return
    result = convolve(x.requires_grad_())
    result.backward(torch.empty_like(result))


def allocated(run: Callable[[], object]) -> int:
    """The most bytes that are alive at once, inside of kernels, too."""
    run()  # what is allocated once
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        run()
    return max(running(profiled))


def running(profiled: profile) -> Iterator[int]:
    alive = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            yield alive


@ON_AVX512
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_and_scratch_are_what_the_allocator_gave_out(shape: str, backward: bool) -> None:
    """Within 3 %: oneDNN's own scratchpads (8 to 60 kB) are not estimated, and these layers hold 1 to 8 MB."""
    run = partial(step, SHAPES[shape], backward=backward)
    real, plan = allocated(run), lamina.plan_step(run)
    assert plan.scratch.peak_bytes == pytest.approx(real, rel=0.03)
    assert plan.scratch.step is not None


@ON_AVX512
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_conv_net_with_the_scratch_of_its_kernels(optimizer: str) -> None:
    """Within 3 %, as above; the tensors alone are more than 20 % short of it."""
    run = partial(train, thin, images, optimizer)
    real, plan = allocated(run), lamina.plan_step(run)
    assert plan.peak_bytes < 0.8 * real
    assert plan.scratch.peak_bytes == pytest.approx(real, rel=0.03)


@pytest.mark.parametrize("shape", SHAPES)
def test_which_library_takes_a_convolution_is_as_torch_says(shape: str) -> None:
    asked = SHAPES[shape]
    convolve, x = layer(**asked)
    assert isinstance(convolve, nn.Conv2d)
    geometry: Any = (convolve.stride, convolve.padding, convolve.dilation)
    call = Convolution(x, convolve.weight, tuple(convolve(x).shape), *geometry, False, convolve.groups)
    found = torch._C._select_conv_backend(x, convolve.weight, None, *geometry, False, [0, 0], convolve.groups)
    assert by_onednn(call) == (found == torch._C._ConvBackend.Mkldnn)


def test_it_is_never_a_part_of_the_peak() -> None:
    run = partial(step, {}, backward=True)
    plan = lamina.plan_step(run, device="cpu")
    assert plan.peak_bytes == sum(plan.by_category.values()) == plan.needed_bytes
    assert plan.scratch_bytes > 0
    assert plan.missing_bytes is not None
    assert plan.missing_with_scratch == plan.missing_bytes + plan.scratch.peak_bytes - plan.peak_bytes
    text = plan.summary()
    assert "not in it, an estimate: scratch of kernels, " in text
    assert "at aten::convolution_backward, backward" in text
    assert "; with the kernels' scratch, an estimate, " in text
    data = json.loads(json.dumps(plan.to_json()))["scratch"]
    assert (data["bytes"], data["peak_bytes"]) == (plan.scratch_bytes, plan.scratch.peak_bytes)
    assert data["is"].startswith("an estimate")
    assert "oneDNN" in data["source"]


def test_a_device_that_is_large_enough_but_for_the_scratch() -> None:
    run = partial(step, {}, backward=True)
    room = lamina.plan_step(run).peak_bytes
    lamina.modes.plan.DEVICES["tight"] = Device("Tight", "cpu", room, 10**9, {"float32": 10**9}, "none")
    try:
        plan = lamina.plan_step(run, device="tight")
    finally:
        del lamina.modes.plan.DEVICES["tight"]
    assert plan.fits is True
    assert "but not with the kernels' scratch, by an estimated " in plan.summary()


def test_flash_attention_and_cublas_on_a_gpu() -> None:
    def attend() -> None:
        query = torch.empty(2, 8, 1000, 64, dtype=torch.bfloat16, requires_grad=True)
        key = torch.empty(2, 4, 1000, 64, dtype=torch.bfloat16, requires_grad=True)
        F.scaled_dot_product_attention(query, key, key, enable_gqa=True).sum().backward()

    plan = lamina.plan_step(attend, device="h100")
    accumulators = 4 * 2 * 8 * 1024 * (64 + 1)  # 1000 tokens are rounded up to 1024; a number more for each of them
    assert list(plan.scratch.by_step.values()) == [accumulators + 2 * (2 * 8 * 1000 * 64) * 2]
    assert plan.scratch.lasting == 0

    def multiply() -> None:
        weight = torch.empty(64, 64, requires_grad=True)
        (weight @ weight).sum().backward()

    sizes = {name: lamina.plan_step(multiply, device=name).scratch.lasting for name in ("h100", "a100", "cuda")}
    assert sizes == {"h100": 2 * 32 * 2**20, "a100": 2 * (8 * 2**20 + 2**17), "cuda": 2 * 32 * 2**20}


def test_what_has_no_estimate_is_named() -> None:
    plan = lamina.plan_step(partial(step, {}, backward=True), device="h100")
    assert plan.scratch.not_estimated == ("aten::convolution", "aten::convolution_backward")
    assert "not estimated: aten::convolution, aten::convolution_backward" in plan.summary()
    nothing = lamina.plan_step(lambda: torch.ones(3) + 1)
    assert nothing.scratch_bytes == 0
    assert "of which no operator here has an estimate" in nothing.summary()


def test_the_plot_shows_it_hatched(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from lamina.modes.plan.plot import picture

    plan = lamina.plan_step(partial(step, {}, backward=True))
    labels = picture(plan).axes[0].get_legend_handles_labels()[1]
    assert any(label.startswith("scratch of kernels, an estimate: ") for label in labels)
