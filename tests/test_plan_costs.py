"""Operations, bytes moved, and the time that follows from a device's data sheet."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import flop_registry

import lamina
from lamina.modes.plan import DEVICES, Device
from lamina.modes.plan.devices import device_named

M, K, N = 40, 50, 60


def product() -> None:
    torch.empty(M, K, dtype=torch.bfloat16) @ torch.empty(K, N, dtype=torch.bfloat16)


def test_flops_and_bytes_of_a_product() -> None:
    plan = lamina.plan_step(product)
    assert plan.flops == 2 * M * K * N
    assert plan.flops_by("op") == {"aten::mm": plan.flops}
    assert plan.flops_by("dtype") == {"bfloat16": plan.flops}
    assert plan.bytes_moved == 2 * (M * K + K * N + M * N)


@pytest.mark.parametrize("claim", ["cpu", "cuda"])
def test_flops_of_attention(claim: str) -> None:
    def step() -> None:
        heads = [torch.empty(2, 3, 16, 8, requires_grad=True, dtype=torch.bfloat16) for _ in range(3)]
        F.scaled_dot_product_attention(*heads, is_causal=True).sum().backward()

    plan = lamina.plan_step(step, device=claim)
    product = 2 * 2 * 3 * 16 * 16 * 8
    assert plan.flops_by("phase") == {"backward": 5 * product, "forward": 2 * product}


@pytest.mark.parametrize("claim", ["cpu", "cuda"])
def test_flops_of_attention_with_grouped_queries(claim: str) -> None:
    def step() -> None:
        query = torch.empty(2, 4, 16, 8, requires_grad=True, dtype=torch.bfloat16)
        key, value = (torch.empty(2, 2, 16, 8, requires_grad=True, dtype=torch.bfloat16) for _ in range(2))
        F.scaled_dot_product_attention(query, key, value, enable_gqa=True).sum().backward()

    product = 2 * 2 * 4 * 16 * 16 * 8
    assert lamina.plan_step(step, device=claim).flops_by("phase") == {"backward": 5 * product, "forward": 2 * product}


def test_the_formula_for_attention_on_the_cpu_is_that_of_the_others() -> None:
    lamina.plan_step(product)
    aten = torch.ops.aten
    ours, theirs = aten._scaled_dot_product_flash_attention_for_cpu, aten._scaled_dot_product_flash_attention
    assert flop_registry[ours] is flop_registry[theirs]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_flops_of_recurrent_layers(kind: type[torch.nn.RNNBase], options: dict[str, Any]) -> None:
    """oneDNN's layers count what they count step by step."""

    def step() -> None:
        layer = kind(5, 7, **options)
        states = torch.empty(2 * 2 if len(options) == 2 else 1, 3, 7, requires_grad=True)
        state = (states, torch.empty_like(states)) if kind is torch.nn.LSTM else states
        layer(torch.empty(11, 3, 5, requires_grad=True), state)[0].sum().backward()

    whole = lamina.plan_step(step)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=torch.backends.mkldnn.allow_tf32):
        parts = lamina.plan_step(step)
    gates = {torch.nn.LSTM: 4, torch.nn.GRU: 3, torch.nn.RNN: 1}[kind]
    first, second = (5 + 7), (2 * 7 + 7)  # inputs, and states
    inputs = 2 * first + 2 * second if len(options) == 2 else first
    forward = 2 * 11 * 3 * gates * 7 * inputs
    assert whole.flops_by("phase") == parts.flops_by("phase") == {"backward": 2 * forward, "forward": forward}
    names = set(whole.flops_by("op"))
    assert ("aten::mkldnn_rnn_layer" in names) is (kind is torch.nn.LSTM)
    assert "aten::mkldnn_rnn_layer" not in parts.flops_by("op")


def moved(step: object) -> int:
    return lamina.plan_step(step).bytes_moved  # type: ignore[arg-type]


def test_bytes_moved() -> None:
    def base() -> torch.Tensor:
        return torch.empty(1000, 10)  # asks for memory, moves nothing

    assert moved(base) == 0
    assert moved(lambda: base().t().reshape(1000, 10).expand(2, 1000, 10)) == 2 * 40_000  # a copy; views move nothing
    assert moved(lambda: base().add_(1)) == 2 * 40_000  # read and written
    assert moved(lambda: base() + torch.empty(1, 10).expand(1000, 10)) == 2 * 40_000 + 40  # what is stored, once
    assert moved(lambda: torch.zeros(1000)) == 4000
    # an embedding reads the rows that it gives, not the table
    assert moved(lambda: F.embedding(torch.empty(7, dtype=torch.int64), base())) == 2 * 7 * 40 + 7 * 8


def test_time_at_best() -> None:
    sheet = Device("small", "cpu", 10**9, bytes_per_second=1000.0, flops={"float32": 10.0, "bfloat16": 100.0})
    DEVICES["small"] = sheet
    try:
        plan = lamina.plan_step(product, device="SMALL")
    finally:
        del DEVICES["small"]
    assert plan.seconds == pytest.approx(2 * M * K * N / 100.0)
    assert dataclasses.replace(sheet, bytes_per_second=1.0).flops_per_second("int64") == 10.0
    slow = dataclasses.replace(plan, hardware=dataclasses.replace(sheet, bytes_per_second=1.0))
    assert slow.seconds == pytest.approx(plan.bytes_moved)
    assert lamina.plan_step(product).seconds is None


def test_the_table() -> None:
    assert {"h200", "h100", "a100", "l4", "cpu"} <= DEVICES.keys()
    for device in DEVICES.values():
        assert device.source
        assert {"float32", "bfloat16", "float16", "int8"} <= device.flops.keys()
        torch.device(device.claim)
    assert device_named("A100") is DEVICES["a100"]
    assert device_named("cuda:3") is None
    assert DEVICES["h200"].memory == 141 * 10**9
