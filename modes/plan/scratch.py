"""Scratch memory of kernels: what one takes while it runs, and has given back when it returns. No tool that sees
operators sees it, so it is an estimate, with its source, beside the plan's bytes and never in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import OpOverload
from ...subclasses.core.schema import facts_of, value_of
from .convolutions import Convolution, backward_scratch, forward_scratch
from .devices import Device
from .kept import unreduced
from .ledger import Step
from .timeline import Moment, Peak

ONEDNN = "copies that oneDNN or im2col makes, as measured on one CPU"
CPU_KERNEL = "a second copy that the CPU's kernel makes, as measured"
LOSS = "temporaries of torch's Loss.cpp"
FLASH = "float32 accumulators, by torch's flash_api.cpp"
CUBLAS = "cuBLAS's workspaces, by torch's CublasHandlePool.cpp"
LARGEST_WORKSPACE = 32 << 20  # of cuBLAS: what a device that the table doesn't have is given


class Estimate(NamedTuple):
    """Of one call. ``nbytes`` None: the kernel takes some, and nothing here says how much."""

    nbytes: int | None
    source: str = ""


@dataclass(frozen=True)
class Scratch:
    """The estimate for a step, at the moment when tensors and scratch together take the most: ``peak_bytes``, of which
    ``nbytes`` are scratch, of the operator ``step`` and ``lasting``: what libraries keep once they have it.
    ``by_step``: of each operator that has an estimate. ``not_estimated``: operators of the step that take some that
    nothing here has a number for.
    """

    nbytes: int
    peak_bytes: int
    step: Step | None
    source: str
    lasting: int
    by_step: dict[int, int] = field(repr=False)
    not_estimated: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain types, bytes; said to be an estimate."""
        step = self.step and self.step._asdict()
        return {
            "is": "an estimate, not in peak_bytes",
            "bytes": self.nbytes,
            "peak_bytes": self.peak_bytes,
            "op": step,
            "source": self.source,
            "lasting_bytes": self.lasting,
            "not_estimated": list(self.not_estimated),
        }


class ScratchLog:
    """Collects the estimates of a step's operators, by device."""

    def __init__(self) -> None:
        self._found: dict[torch.device, dict[int, Estimate]] = {}
        self._unknown: dict[torch.device, dict[str, None]] = {}
        self._multiplying: set[tuple[torch.device, bool]] = set()

    def add(self, step: Step, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device) -> None:
        """One call, its tensors on ``device``."""
        if device.type == "cuda" and step.op.partition(".")[0] in _PRODUCTS:
            self._multiplying.add((device, step.phase == "backward"))
        found = scratch_of(func, args, kwargs, device)
        if found is None:
            return
        if found.nbytes is None:
            self._unknown.setdefault(device, {})[step.op] = None
        elif found.nbytes > 0:
            self._found.setdefault(device, {})[step.number] = found

    def at_most(
        self,
        device: torch.device,
        hardware: Device | None,
        moments: Sequence[Moment],
        peak: Peak,
        steps: Sequence[Step],
    ) -> Scratch:
        """On one device, where that takes the most together with what tensors take."""
        found = self._found.get(device, {})
        threads = sum(where == device for where, _ in self._multiplying)
        lasting = threads * (LARGEST_WORKSPACE if hardware is None else hardware.product_workspace)
        totals = {moment.number: moment.total for moment in moments}
        place, most = peak.step.number if peak.step else -1, peak.nbytes
        for number, estimate in found.items():
            together = totals.get(number, 0) + (estimate.nbytes or 0)
            if together > most:
                place, most = number, together
        here = found.get(place)
        source = "; ".join([*([here.source] if here else []), *([CUBLAS] if lasting else [])])
        return Scratch(
            nbytes=lasting + ((here.nbytes or 0) if here else 0),
            peak_bytes=most + lasting,
            step=steps[place] if place >= 0 else None,
            source=source,
            lasting=lasting,
            by_step={number: estimate.nbytes or 0 for number, estimate in found.items()},
            not_estimated=tuple(self._unknown.get(device, {})),
        )


def scratch_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device) -> Estimate | None:
    """Of one call on ``device``. None: none is known of."""
    if not isinstance(func, OpOverload):
        return None
    name = func.overloadpacket.__name__
    if name in _UNKNOWN.get(device.type, ()):
        return Estimate(None)
    formula = _FORMULAS.get((device.type, name))
    if formula is None:
        if device.type == "cpu" and name in _PRODUCT_NAMES and _is_half(args):
            return Estimate(None)  # oneDNN's scratchpad
        return None
    given = {a.name: value_of(a, tuple(args), dict(kwargs)) for a in facts_of(func).arguments}
    return formula(given)


def _forward(given: Mapping[str, Any]) -> Estimate:
    call = _convolution(given, _output_shape(given))
    return Estimate(forward_scratch(call), ONEDNN)


def _backward(given: Mapping[str, Any]) -> Estimate:
    call = _convolution(given, tuple(given["grad_output"].shape))
    return Estimate(backward_scratch(call, given["output_mask"]), ONEDNN)


def _convolution(given: Mapping[str, Any], output: tuple[int, ...]) -> Convolution:
    stride, padding, dilation = (_each(given[name], len(output) - 2) for name in ("stride", "padding", "dilation"))
    rest = given["transposed"], given["groups"]
    return Convolution(given["input"], given["weight"], output, stride, padding, dilation, *rest)


def _each(sizes: Sequence[int], dims: int) -> Sequence[int]:
    return list(sizes) * dims if len(sizes) == 1 else sizes


def _output_shape(given: Mapping[str, Any]) -> tuple[int, ...]:
    x, weight, dims = given["input"], given["weight"], given["input"].dim() - 2
    geometry = [_each(given[name], dims) for name in ("stride", "padding", "dilation", "output_padding")]
    places = []
    for size, window, stride, padding, dilation, more in zip(x.shape[2:], weight.shape[2:], *geometry, strict=True):
        reach = dilation * (window - 1)
        if given["transposed"]:
            places.append((size - 1) * stride - 2 * padding + reach + more + 1)
        else:
            places.append((size + 2 * padding - reach - 1) // stride + 1)
    made = weight.shape[1] * given["groups"] if given["transposed"] else weight.shape[0]
    return (x.shape[0], made, *places)


def _normalization(given: Mapping[str, Any]) -> Estimate | None:
    """In training, where gradient and input have one layout: the input's gradient is made twice."""
    gradient, x = given["grad_out"], given["input"]
    alike = gradient.is_contiguous() and x.is_contiguous()
    last = [t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in (gradient, x)]
    wanted = given["train"] and given["output_mask"][0]
    return Estimate(x.nbytes, CPU_KERNEL) if wanted and (alike or all(last)) else None


def _reduced(given: Mapping[str, Any]) -> Estimate:
    """The loss of each element, before it is reduced."""
    return Estimate(unreduced(given) * given["self"].element_size(), LOSS)


def _logits(given: Mapping[str, Any]) -> Estimate:
    """The logarithm of the sigmoid, and next to it the loss of each element, or the weight of each by its class."""
    each, weight = given["self"].nbytes, given["pos_weight"]
    most = 2 * each + (0 if weight is None else weight.nbytes)
    return Estimate(most - (0 if given["reduction"] else each), LOSS)


def _soft_margin(given: Mapping[str, Any]) -> Estimate:
    return Estimate(2 * given["self"].nbytes, LOSS)


def _exponentials(given: Mapping[str, Any]) -> Estimate:
    return Estimate(given["self"].nbytes, CPU_KERNEL)


def _flash(given: Mapping[str, Any]) -> Estimate:
    """``dq_accum`` and ``softmax_d``; and where queries share a key, the gradients of key and value for each query."""
    query, key = given["query"], given["key"]
    batch, heads, tokens, width = query.shape
    rounded = _up(tokens, 128)
    nbytes = 4 * batch * heads * rounded * (_up(width, 32 if width <= 128 else 64) + 1)
    if key.shape[1] != heads:
        nbytes += 2 * batch * heads * key.shape[2] * width * key.element_size()
    return Estimate(nbytes, FLASH)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _is_half(args: Sequence[Any]) -> bool:
    first: Tensor | None = next(tensors_in(tuple(args)), None)
    return first is not None and first.dtype in (torch.bfloat16, torch.float16)


_PRODUCT_NAMES = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "_scaled_mm", "_int_mm", "mv", "addmv", "dot")
_PRODUCTS = frozenset(f"aten::{name}" for name in _PRODUCT_NAMES)
_FORMULAS: dict[tuple[str, str], Callable[[Mapping[str, Any]], Estimate | None]] = {
    ("cpu", "convolution"): _forward,
    ("cpu", "convolution_backward"): _backward,
    ("cpu", "native_batch_norm_backward"): _normalization,
    ("cpu", "logsumexp"): _exponentials,
    ("cuda", "_scaled_dot_product_flash_attention_backward"): _flash,
}
_LOSSES: dict[str, Callable[[Mapping[str, Any]], Estimate | None]] = {
    "mse_loss": _reduced,
    "smooth_l1_loss": _reduced,
    "huber_loss": _reduced,
    "binary_cross_entropy_with_logits": _logits,
    "soft_margin_loss_backward": _soft_margin,
}
_FORMULAS |= {(device, name): formula for device in ("cpu", "cuda") for name, formula in _LOSSES.items()}
_SOLVERS = ("linalg_inv_ex", "_linalg_svd", "linalg_qr", "_linalg_eigh", "linalg_cholesky_ex", "_linalg_solve_ex")
_TRANSFORMS = ("_fft_r2c", "_fft_c2r", "_fft_c2c")
_UNKNOWN = {
    "cpu": (
        *_SOLVERS,
        *_TRANSFORMS,
        "upsample_bilinear2d",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "cuda": (
        *_SOLVERS,
        *_TRANSFORMS,
        "convolution",  # cuDNN's, by the algorithm that it picks on the device
        "convolution_backward",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_cudnn_attention_backward",
        *("sort", "topk", "cumsum", "_unique2", "embedding_dense_backward", "index_put", "index_put_"),  # CUB's
    ),
}
