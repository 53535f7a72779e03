"""Devices for estimates: what their makers' data sheets say. The table is a dictionary: change it, add to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ...subclasses.core.errors import LaminaError

TERA, GIGA = 10**12, 10**9


class UnknownDeviceError(LaminaError, ValueError):
    """A device that is neither in the table nor one of torch's."""


@dataclass(frozen=True)
class Device:
    """``flops``: floating-point (or integer) operations a second at best, dense, by the dtype of the result; a
    multiplication and an addition are two. ``memory``: bytes. ``claim``: the torch device that a plan claims for it.
    ``product_workspace``: bytes that torch gives cuBLAS for each thread that multiplies matrices.
    """

    name: str
    claim: str
    memory: int
    bytes_per_second: float
    flops: Mapping[str, float] = field(repr=False)
    source: str = ""
    product_workspace: int = 0

    def flops_per_second(self, dtype: str | None) -> float:
        """For a dtype that the table doesn't have, such as int64: as float32."""
        return self.flops.get(dtype or "", self.flops["float32"])


HOPPER_WORKSPACE, OTHER_WORKSPACE = 32 << 20, (8 << 20) + (128 << 10)  # without CUBLAS_WORKSPACE_CONFIG


def _gpu(
    name: str, memory: float, bandwidth: float, tera: Mapping[str, float], source: str, workspace: int = OTHER_WORKSPACE
) -> Device:
    rates = {dtype: rate * TERA for dtype, rate in tera.items()}
    return Device(name, "cuda", int(memory * GIGA), bandwidth * GIGA, rates, source, workspace)


_HOPPER = {"float64": 67, "float32": 67, "bfloat16": 989.5, "float16": 989.5, "float8_e4m3fn": 1979, "int8": 1979}
_AMPERE = {"float64": 19.5, "float32": 19.5, "bfloat16": 312, "float16": 312, "int8": 624}
_ADA = {"float64": 0.47, "float32": 30.3, "bfloat16": 121, "float16": 121, "float8_e4m3fn": 242.5, "int8": 242.5}
_XEON = {"float64": 3.584, "float32": 7.168, "bfloat16": 229.4, "float16": 7.168, "int8": 458.8}

DEVICES: dict[str, Device] = {
    "h200": _gpu("NVIDIA H200 SXM", 141, 4800, _HOPPER, "NVIDIA H200 Tensor Core GPU datasheet", HOPPER_WORKSPACE),
    "h100": _gpu("NVIDIA H100 SXM", 80, 3350, _HOPPER, "NVIDIA H100 Tensor Core GPU datasheet", HOPPER_WORKSPACE),
    "a100": _gpu("NVIDIA A100 80GB SXM", 80, 2039, _AMPERE, "NVIDIA A100 Tensor Core GPU datasheet"),
    "l4": _gpu("NVIDIA L4", 24, 300, _ADA, "NVIDIA L4 Tensor Core GPU datasheet; float64 as 1/64 of float32"),
    "cpu": Device(
        "Intel Xeon Platinum 8480+",
        "cpu",
        512 * GIGA,
        307.2 * GIGA,
        {dtype: rate * TERA for dtype, rate in _XEON.items()},
        "Intel's specification: 56 cores at 2.0 GHz with two AVX-512 units and AMX, 8 channels of DDR5-4800; memory: "
        "eight modules of 64 GB, an assumption",
    ),
}
"""By the name that ``plan_step(device=...)`` and ``lamina plan --device`` take, in lower case.

Rates of the tensor cores are those without sparsity, half of what the data sheets put first. float32 is computed
without TF32, torch's default. A data sheet's GB are 10**9 bytes: a few percent less than what the driver reports, which
is about what a context and its libraries take.
"""


def device_named(name: str) -> Device | None:
    """The device of the table, or None where the name is one of torch's own, such as ``cuda:1``.

    Raises:
        UnknownDeviceError: it is neither.
    """
    found = DEVICES.get(name.lower())
    if found is not None:
        return found
    try:
        torch.device(name)
    except RuntimeError:
        known = ", ".join(DEVICES)
        raise UnknownDeviceError(
            f"there is no device {name!r} in the table of devices: it has {known} (add to "
            "lamina.modes.plan.DEVICES), and torch has no device of this name."
        ) from None
    return None
