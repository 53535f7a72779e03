"""The claimed device, wherever C++ would answer with that of the carrier."""

from __future__ import annotations

from typing import Any

import torch

NAMES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def device_of(device: Any) -> torch.device:
    """The device as a tensor on it says it: "cuda" is "cuda:0", or the current one of a program that uses CUDA.

    Raises:
        RuntimeError: torch knows no such device.
    """
    if isinstance(device, int):
        device = f"cuda:{device}" if not torch.accelerator.is_available() else torch.device(device)
    found = torch.device(device)
    if found.type in ("cpu", "meta"):
        return torch.device(found.type)
    if found.index is not None:
        return found
    current = torch.cuda.current_device() if found.type == "cuda" and torch.cuda.is_initialized() else 0
    return torch.device(found.type, current)


def _is(kind: str) -> Any:
    return property(lambda self: self.device.type == kind, doc=f"Whether it claims to be on a device of type {kind}.")


class Claims:
    """What a tensor says of its device, answered by ``device``."""

    device: torch.device
    dtype: torch.dtype

    is_cpu = _is("cpu")
    is_cuda = _is("cuda")
    is_ipu = _is("ipu")
    is_maia = _is("maia")
    is_meta = _is("meta")
    is_mps = _is("mps")
    is_mtia = _is("mtia")
    is_vulkan = _is("vulkan")
    is_xla = _is("xla")
    is_xpu = _is("xpu")

    def get_device(self) -> int:
        """The index of the claimed device; -1 on the CPU."""
        return -1 if self.device.index is None else self.device.index

    def type_name(self) -> str:
        """What ``type()`` says: "torch.cuda.HalfTensor"."""
        kind = "" if self.device.type == "cpu" else f"{self.device.type}."
        return f"torch.{kind}{NAMES.get(self.dtype, str(self.dtype).removeprefix('torch.').title())}Tensor"


# All of it but ``device`` itself, which a wrapper over one of ours says as well.
ANSWERS = {name: value for name, value in vars(Claims).items() if name.startswith(("is_", "get_"))}
