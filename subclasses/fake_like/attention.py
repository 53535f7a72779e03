"""scaled_dot_product_attention as the claimed device does it.

C++ chooses the kernel by device, above dispatch: a carrier on the meta device would get the plain mathematics, which
saves the scores. The choice here follows ``aten/src/ATen/native/transformers``: ``sdp_utils_cpp.cpp`` for the CPU,
``cuda/sdp_utils.cpp`` for CUDA, a GPU of compute capability 8.0 or more, in the order that
``torch.nn.attention.sdpa_kernel`` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ..core.private import attention_order, unbatched_attention_is_fused
from .errors import NoKernelError, UndecidedError

Choice = Callable[["Call"], bool]
Mathematics = Callable[[], torch.Tensor]
aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.query, self.key, self.value

    def batched(self) -> Call:
        """As a batch of one."""
        query, key, value = (t.unsqueeze(0) for t in self.tensors)
        mask = self.mask
        while mask is not None and mask.dim() < 4:
            mask = mask.unsqueeze(0)
        return replace(self, query=query, key=key, value=value, mask=mask)

    @property
    def added(self) -> torch.Tensor | None:
        """The mask as it is added to the scores."""
        if self.mask is None or self.mask.dtype != torch.bool:
            return self.mask
        hidden = self.mask.new_full((), -math.inf, dtype=self.query.dtype)  # a factory would need the mode
        return torch.where(self.mask, 0.0, hidden)

    @property
    def differentiable(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


def _four_dimensional(call: Call) -> bool:
    return all(t.dim() == 4 for t in call.tensors)


def _of(*dtypes: torch.dtype) -> Choice:
    return lambda call: call.query.dtype in dtypes and all(t.dtype == call.query.dtype for t in call.tensors)


def _no_mask(call: Call) -> bool:
    return call.mask is None


def _heads(call: Call) -> bool:
    """Batch sizes agree, and heads do, or those of the keys divide those of the query."""
    if len({t.size(0) for t in call.tensors}) > 1:
        return False
    query, key, value = (t.size(-3) for t in call.tensors)
    return key == value and (query % key == 0 if call.grouped and key else query == key)


def _not_empty(call: Call) -> bool:
    return call.query.size(-2) > 0 and call.key.size(-2) > 0


def _dense_rows(call: Call) -> bool:
    return all(t.stride(-1) == 1 for t in call.tensors) and _dense_mask(call)


def _dense_rows_or_one(call: Call) -> bool:
    dense = all(t.stride(-1) == 1 for t in call.tensors) or call.query.size(-1) == 1
    return dense and _dense_mask(call)


def _dense_mask(call: Call) -> bool:
    return call.mask is None or call.mask.stride(-1) == 1


def _same_width(call: Call) -> bool:
    return len({t.size(-1) for t in call.tensors}) == 1


def _narrow(call: Call) -> bool:
    return call.query.size(-1) <= 256


def _square_if_causal(call: Call) -> bool:
    return not call.causal or call.query.size(-2) == call.key.size(-2)


def _aligned(call: Call) -> bool:
    """Rows of a multiple of 16 bytes, from a multiple of 16 bytes on."""
    step = 8 if call.query.dtype in _HALF else 4
    rows = call.query.size(-1) == call.key.size(-1) and all(
        t.size(-1) > 0 and t.size(-1) % step == 0 for t in call.tensors
    )
    return rows and all(not t.numel() or int(t.storage_offset()) % step == 0 for t in call.tensors)


def _no_dropout(call: Call) -> bool:
    return call.dropout == 0


def _sixteenths(call: Call) -> bool:
    return call.dropout * 16 == math.floor(call.dropout * 16)


def _broadcasting_mask(call: Call) -> bool:
    if call.mask is None:
        return True
    if call.mask.requires_grad or call.mask.dim() not in (2, 4):
        return False
    whole = (*call.query.shape[:2], call.query.size(2), call.key.size(2))[-call.mask.dim() :]
    return all(size in (1, full) for size, full in zip(call.mask.shape, whole, strict=True))


def _cudnn_shapes(call: Call) -> bool:
    widths = (call.query.size(-1), call.value.size(-1))
    once = call.key.size(-2) == 1 or (call.dropout != 0 and call.query.size(-2) == 1)
    return all(width <= 128 and width % 8 == 0 for width in widths) and not once


def _deterministic(call: Call) -> bool:
    return not torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled()


_FUSED: tuple[Choice, ...] = (_four_dimensional, _not_empty, _heads)
FLASH = (*_FUSED, _no_mask, _same_width, _narrow, _square_if_causal, _of(*_HALF), _dense_rows_or_one)
EFFICIENT = (*_FUSED, _aligned, _dense_rows, _of(*_HALF, torch.float32))
CUDNN = (*_FUSED, _deterministic, _of(*_HALF), _broadcasting_mask, _sixteenths, _dense_rows_or_one, _cudnn_shapes)
CPU = (*_FUSED, _no_dropout, _of(torch.float64, torch.float32, *_HALF), _broadcasting_mask, _same_width, _dense_rows)


def fuses_on_cpu(call: Call) -> bool:
    """Whether the CPU takes its fused kernel."""
    return torch.backends.cuda.flash_sdp_enabled() and all(condition(call) for condition in CPU)


def attend(call: Call, mathematics: Mathematics) -> torch.Tensor:
    """The result, from the operator that the claimed device of ``call.query`` runs; from ``mathematics()``, which is
    what C++ does on no device, where no kernel takes the call.

    Raises:
        UndecidedError: it is not known what this device does.
        NoKernelError: no enabled kernel of the device takes these arguments.
    """
    kind = call.query.device.type
    if kind == "cpu":
        batched = call.batched() if call.query.dim() == 3 and unbatched_attention_is_fused() else call
        if not fuses_on_cpu(batched):
            return mathematics()
        result = _flash_on_cpu(batched)
        return result if batched is call else result.squeeze(0)
    if kind == "cuda":
        return _on_cuda(call, mathematics)
    if kind == "meta":
        return mathematics()
    raise UndecidedError(
        f"scaled_dot_product_attention on {call.query.device}: lamina knows how it is done on the CPU and on CUDA. "
        'Claim one of these, or write the attention out ("softmax(q @ k.mT) @ v").'
    )


def _on_cuda(call: Call, mathematics: Mathematics) -> torch.Tensor:
    for name in attention_order():
        if name == "flash" and torch.backends.cuda.flash_sdp_enabled() and all(c(call) for c in FLASH):
            return _flash(call)
        if name == "efficient" and torch.backends.cuda.mem_efficient_sdp_enabled() and all(c(call) for c in EFFICIENT):
            return _efficient(call)
        if name == "cudnn" and torch.backends.cuda.cudnn_sdp_enabled() and all(c(call) for c in CUDNN):
            return _cudnn(call)
        if name == "math" and torch.backends.cuda.math_sdp_enabled():
            return mathematics()
    shapes = ", ".join(f"{tuple(t.shape)}" for t in call.tensors)
    raise NoKernelError(
        f"No available kernel. Aborting execution. (scaled_dot_product_attention on {call.query.device}, "
        f"{call.query.dtype}, {shapes}{'' if call.mask is None else ', with a mask'}: none of the enabled ones takes "
        "these; torch.nn.attention.sdpa_kernel says which are enabled.)"
    )


def _flash(call: Call) -> torch.Tensor:
    width = call.query.size(-1)
    missing = -width % 8
    query, key, value = (torch.constant_pad_nd(t, (0, missing)) if missing else t for t in call.tensors)
    scale = 1 / math.sqrt(width) if call.scale is None else call.scale
    result = aten._scaled_dot_product_flash_attention.default(
        query, key, value, call.dropout, call.causal, False, scale=scale
    )[0]
    return result[..., :width] if missing else result  # type: ignore[no-any-return]


def _efficient(call: Call) -> torch.Tensor:
    mask = call.added
    if mask is not None:
        if mask.stride(-1) != 1 or any(stride % 8 for stride in mask.stride()[:-1]):
            width = mask.size(-1)
            mask = torch.constant_pad_nd(mask, (0, 8 - width % 8))[..., :width]
        mask = mask.expand(*call.query.shape[:3], call.key.size(2))
    return aten._scaled_dot_product_efficient_attention.default(  # type: ignore[no-any-return]
        *call.tensors, mask, call.differentiable, call.dropout, call.causal, scale=call.scale
    )[0]


def _cudnn(call: Call) -> torch.Tensor:
    return aten._scaled_dot_product_cudnn_attention.default(  # type: ignore[no-any-return]
        *call.tensors, call.added, call.differentiable, call.dropout, call.causal, False, scale=call.scale
    )[0]


def _flash_on_cpu(call: Call) -> torch.Tensor:
    return aten._scaled_dot_product_flash_attention_for_cpu.default(  # type: ignore[no-any-return]
        *call.tensors, call.dropout, call.causal, attn_mask=call.added, scale=call.scale
    )[0]


def call_of(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    """The call, checked as C++ checks it.

    Raises:
        RuntimeError: what torch raises for these arguments.
    """
    tensors = (query, key, value)
    if len({t.dtype for t in tensors}) > 1:
        given = ", ".join(
            f"{name}.dtype: {t.dtype}" for name, t in zip(("query", "key", "value"), tensors, strict=True)
        )
        raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got {given} instead.")
    if len({t.device for t in tensors}) > 1:
        given = ", ".join(
            f"{name}.device: {t.device}" for name, t in zip(("query", "key", "value"), tensors, strict=True)
        )
        raise RuntimeError(f"Expected query, key, and value to have the same device type, but got {given} instead.")
    if any(t.dim() < 2 for t in tensors):
        raise RuntimeError("Expected query, key, and value to all be at least 2 dimensional.")
    if attn_mask is not None:
        if is_causal:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
        if attn_mask.dtype not in (torch.bool, query.dtype, torch.float32):
            raise RuntimeError(
                f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                f"{attn_mask.dtype} and  query.dtype: {query.dtype} instead."
            )
    return Call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
