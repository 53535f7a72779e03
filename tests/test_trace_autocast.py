"""Autocast's policies as observed, against what autocast does to real calls and against the lists in torch's header."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lamina.modes.trace import DispatcherTrace, op_card, overload_of
from lamina.modes.trace.autocast import DEVICES, Policy, observed_policy

# The macros of autocast_mode.h, which list operators for CUDA and the backends that follow it.
MACROS = {
    "AT_FORALL_LOWER_PRECISION_FP": Policy.LOWER_PRECISION_FP,
    "AT_FORALL_FP32": Policy.FP32,
    "AT_FORALL_FP32_SET_OPT_DTYPE": Policy.FP32_SET_OPT_DTYPE,
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": Policy.FP32_APPEND_DTYPE,
    "AT_FORALL_PROMOTE": Policy.PROMOTE,
}


def with_kernel(key: str) -> list[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return sorted(
        name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has(name, key)
    )


def policies(key: str) -> dict[str, Policy]:
    names = set(with_kernel(key)) - {
        "aten::_cudnn_rnn"
    }  # its kernel, which only builds for CUDA have, reads the shapes
    return {name.removeprefix("aten::"): observed_policy(overload_of(name), key) for name in names}


def listed() -> dict[str, Policy]:
    """Operator to the macro that lists it; an overload is its second argument."""
    text = (Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h").read_text()
    found = {}
    for block in re.split(r"#define ", text)[1:]:
        macro, _, body = block.partition("\n\n")[0].replace("\\\n", " ").partition("(")
        for match in re.finditer(r"_\(\s*(\w+)(?:\s*,\s*(\w+))?\s*\)", body.partition(")")[2]):
            if macro in MACROS:
                found[".".join(filter(None, match.groups()))] = MACROS[macro]
    return found


def test_each_operator_on_the_lists_of_cuda_is_seen_to_have_its_policy() -> None:
    """No GPU is needed."""
    seen, expected = policies("AutocastCUDA"), listed()
    assert len(expected) > 100
    assert {name: seen.get(name) for name in expected} == expected
    unlisted = {name: seen[name] for name in seen.keys() - expected.keys()}
    written_out = {
        "binary_cross_entropy": Policy.REFUSED,
        "cudnn_convolution": Policy.LOWER_PRECISION_FP,
        "norm.Scalar": Policy.FP32_APPEND_DTYPE,
    }
    assert unlisted.items() >= written_out.items()


def test_every_kernel_of_autocast_on_the_cpu_has_a_policy() -> None:
    seen = policies("AutocastCPU")
    assert len(seen) > 100
    assert Policy.NO_CAST not in seen.values()
    assert seen["linear"] is seen["conv2d"] is seen["matmul"] is Policy.LOWER_PRECISION_FP
    assert seen["mse_loss"] is seen["fft_fft"] is Policy.FP32
    promoted = {name.partition(".")[0] for name, policy in seen.items() if policy is Policy.PROMOTE}
    assert promoted == {"cat", "index_copy", "stack"}


def two(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 4, 4, dtype=dtype), torch.randn(2, 3, 4, 4, dtype=dtype)


# Real calls whose result has the dtype that the kernel ran in.
CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "aten::matmul": torch.matmul,
    "aten::linear": lambda a, b: F.linear(a, b[0, 0]),
    "aten::conv2d": F.conv2d,
    "aten::mse_loss": F.mse_loss,
    "aten::avg_pool3d": lambda a, _: F.avg_pool3d(a, 2),
    "aten::trace": lambda a, _: a[0, 0].trace(),
    "aten::cat": lambda a, b: torch.cat([a, b]),
    "aten::stack": lambda a, b: torch.stack([a, b]),
    "aten::layer_norm": lambda a, _: F.layer_norm(a, (4,)),
}


@pytest.mark.parametrize("op", CALLS)
def test_what_is_observed_is_what_autocast_does_to_real_tensors(op: str) -> None:
    wide, narrow = two(torch.float32), two(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        seen = tuple(CALLS[op](*pair).dtype for pair in (wide, narrow, (narrow[0], wide[1])))
    full, half = torch.float32, torch.bfloat16
    text = op_card(op).autocast["AutocastCPU"].partition(":")[0]
    expected = {
        "lower_precision_fp": (half, half, half),
        "fp32": (full, full, full),
        "promote": (full, half, full),
        "passed over": (full, half, half),
    }
    assert seen == expected[text]


def test_the_policy_of_a_custom_operator_is_seen_too() -> None:
    @torch.library.custom_op("lamina_autocast::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x + x

    assert op_card("lamina_autocast::twice").autocast["AutocastCPU"] == "passed over: no cast"
    twice.register_autocast("cpu", torch.float16)
    with pytest.raises(RuntimeError, match="not"):
        observed_policy(overload_of("lamina_autocast::twice"), "AutocastCUDA")
    card = op_card("lamina_autocast::twice")
    assert "float16" in card.autocast["AutocastCPU"]


def test_observing_leaves_no_trace() -> None:
    with DispatcherTrace() as trace:
        op_card("aten::addmm")
        torch.ones(2).sin()
    assert [each.key for each in trace.decisions if each.op == "aten::sin"] == ["AutogradCPU", "CPU"]
    assert set(DEVICES) == {"AutocastCPU", "AutocastCUDA"}
