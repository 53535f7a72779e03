"""Attention, recurrent cells and the encoder's fast path: as the claimed device would, or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import lamina
from lamina import FakeLikeTensor
from lamina.modes import DispatchLog, FakeLikeMode
from lamina.subclasses.fake_like import replays

aten = torch.ops.aten
GIB = 2**30
HALF = (torch.bfloat16, torch.float16)
FLASH = "aten::_scaled_dot_product_flash_attention"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
CUDNN = "aten::_scaled_dot_product_cudnn_attention"
ON_CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(autouse=True)
def _default_kernels() -> Iterator[None]:
    yield
    assert torch.backends.cuda.flash_sdp_enabled()


def operators(run: Callable[[], Any]) -> list[str]:
    with DispatchLog() as log:
        run()
    names = [str(record).partition("(")[0].removesuffix(".default") for record in log.log.records]
    return [name for name in names if name != "aten::detach"]  # of what is saved


def saved_bytes(run: Callable[[], Any]) -> int:
    """Of the storages that autograd keeps."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run()
    assert out.requires_grad
    return sum(kept.values())


def heads(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = True) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=dtype, requires_grad=grad) for _ in range(3)]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_cuda_saves_what_flash_attention_saves(dtype: torch.dtype, causal: bool) -> None:
    with FakeLikeMode("cuda"):
        q, k, v = heads(1, 32, 4096, 128, dtype=dtype)
        assert operators(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)) == [FLASH]
        saved = saved_bytes(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.sum().backward()
        with sdpa_kernel(SDPBackend.MATH):
            scores = saved_bytes(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    assert 0.12 * GIB < saved < 0.13 * GIB
    assert scores > 2 * GIB
    assert out.device == q.grad.device == torch.device("cuda:0")
    assert q.grad.dtype is dtype


@pytest.mark.parametrize(
    ("dtype", "width", "options", "expected"),
    [
        (torch.float32, 128, {}, EFFICIENT),
        (torch.float32, 126, {}, None),
        (torch.float64, 128, {}, None),
        (torch.float16, 256, {}, FLASH),
        (torch.float16, 264, {}, EFFICIENT),
        (torch.float16, 100, {}, FLASH),
        (torch.float16, 128, {"mask": torch.bool}, EFFICIENT),
        (torch.float16, 128, {"mask": torch.float16}, EFFICIENT),
        (torch.float16, 128, {"dropout_p": 0.1}, FLASH),
        (torch.float16, 128, {"keys": 6, "is_causal": True}, EFFICIENT),
        (torch.float16, 128, {"keys": 6}, FLASH),
        (torch.float16, 128, {"kv_heads": 2, "enable_gqa": True}, FLASH),
    ],
)
def test_the_kernel_on_cuda_follows_dtype_width_and_mask(
    dtype: torch.dtype, width: int, options: dict[str, Any], expected: str | None
) -> None:
    options = dict(options)
    keys, kv_heads, mask = options.pop("keys", 8), options.pop("kv_heads", 4), options.pop("mask", None)
    with FakeLikeMode("cuda"):
        q = torch.empty(2, 4, 8, width, dtype=dtype)
        k, v = (torch.empty(2, kv_heads, keys, width, dtype=dtype) for _ in range(2))
        if mask is not None:
            options["attn_mask"] = torch.ones(8, keys, dtype=mask)
        ran = operators(lambda: F.scaled_dot_product_attention(q, k, v, **options))
        out = F.scaled_dot_product_attention(q, k, v, **options)
    assert (out.shape, out.dtype) == (q.shape, dtype)
    fused = [name for name in ran if name.startswith("aten::_scaled_dot")]
    assert fused == ([] if expected is None else [expected])


def test_the_kernels_that_the_program_enables_are_those_that_are_taken() -> None:
    with FakeLikeMode("cuda"):
        q, k, v = heads(1, 2, 8, 16)
        for backend, expected in (
            (SDPBackend.FLASH_ATTENTION, FLASH),
            (SDPBackend.EFFICIENT_ATTENTION, EFFICIENT),
            (SDPBackend.CUDNN_ATTENTION, CUDNN),
        ):
            with sdpa_kernel(backend):
                assert operators(lambda: F.scaled_dot_product_attention(q, k, v)) == [expected]
                F.scaled_dot_product_attention(q, k, v).sum().backward()
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            assert operators(lambda: F.scaled_dot_product_attention(q, k, v)) == [CUDNN]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(lamina.NoKernelError, match="No available kernel"):
            F.scaled_dot_product_attention(q.float(), k.float(), v.float())


MASKS = [None, ((8, 8)), (1, 8), (2, 1, 8, 8), (2, 4, 1, 8), (4, 8, 8)]


@pytest.mark.parametrize(
    ("mask", "grad", "dtype"), list(itertools.product(MASKS, [False, True], [torch.float32, torch.bfloat16]))
)
def test_attention_on_the_cpu_runs_the_operators_that_the_real_cpu_runs(
    mask: tuple[int, ...] | None, grad: bool, dtype: torch.dtype
) -> None:
    for options in ({}, {"dropout_p": 0.5}, {"scale": 2.0}, {"is_causal": True}):
        if mask is not None and "is_causal" in options:
            continue

        def run(options: Any = options) -> Any:
            q, k, v = (torch.ones(2, 4, 8, 16, dtype=dtype, requires_grad=grad) for _ in range(3))
            additive = None if mask is None else torch.ones(mask, dtype=dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=additive, **options)

        real, expected = operators(run), run()
        with FakeLikeMode():
            fake, out = operators(run), run()
        assert fake == real
        assert (out.shape, out.stride(), out.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert out.requires_grad == expected.requires_grad


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q[..., :7, :], k, v),
        lambda q, k, v: (q, k[:, :2], v[:, :2]),
        lambda q, k, v: (q, k[:1], v[:1]),
        lambda q, k, v: (q[..., :0, :], k, v),
        lambda q, k, v: (q.mT.contiguous().mT, k, v),
        lambda q, k, v: (q[0], k[0], v[0]),
        lambda q, k, v: (q, k, v[..., :8]),
    ],
)
def test_whether_the_cpu_fuses_is_what_torch_chooses(change: Callable[..., Any]) -> None:
    real = change(*(torch.ones(2, 4, 8, 16) for _ in range(3)))
    chosen = torch._fused_sdp_choice(*real) == int(SDPBackend.FLASH_ATTENTION.value)
    grouped = real[0].size(-3) != real[1].size(-3)
    with FakeLikeMode():
        fakes = change(*(torch.ones(2, 4, 8, 16) for _ in range(3)))
        ran = operators(lambda: F.scaled_dot_product_attention(*fakes, enable_gqa=grouped))
    assert (ON_CPU in ran) == (chosen or grouped)
    assert ran == operators(lambda: F.scaled_dot_product_attention(*real, enable_gqa=grouped))


def test_attention_under_inference_mode_and_outside_the_mode_is_decided_too() -> None:
    with FakeLikeMode("cuda"):
        q, k, v = heads(1, 2, 8, 16, grad=False)
        with torch.inference_mode():
            replays.clear()
            out = F.scaled_dot_product_attention(q, k, v)
            assert [replay.op for replay in replays] == [aten._scaled_dot_product_flash_attention.default]
    assert out.device == q.device
    q, k, v = (FakeLikeTensor.from_tensor(torch.ones(1, 2, 8, 16, dtype=torch.float16), "cuda") for _ in range(3))
    assert operators(lambda: F.scaled_dot_product_attention(q, k, v)) == [FLASH]


def test_attention_refuses_what_torch_refuses() -> None:
    with FakeLikeMode("cuda"):
        q, k, v = heads(1, 2, 8, 16)
        with pytest.raises(RuntimeError, match="same dtype"):
            F.scaled_dot_product_attention(q, k.float(), v)
        with pytest.raises(RuntimeError, match="same device"):
            F.scaled_dot_product_attention(q, k.cpu(), v)
        with pytest.raises(RuntimeError, match="is_causal=True"):
            F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(8, 8, dtype=torch.bool), is_causal=True)
        with pytest.raises(RuntimeError, match="attn_mask dtype"):
            F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(8, 8, dtype=torch.int64))
    with FakeLikeMode("xpu"), pytest.raises(lamina.UndecidedError, match="xpu"):
        F.scaled_dot_product_attention(*heads(1, 2, 8, 16))


def test_plain_meta_tensors_attend_as_ever() -> None:
    q = torch.empty(1, 2, 8, 16, device="meta", requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q)
    assert type(out) is torch.Tensor
    out.sum().backward()


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells_are_planned_on_the_cpu_and_refused_on_cuda(cell: type[nn.Module]) -> None:
    module, x = cell(4, 5), torch.ones(2, 4)
    real = operators(lambda: module(x))
    with FakeLikeMode():
        module, x = cell(4, 5), torch.ones(2, 4)
        assert operators(lambda: module(x)) == real
    with FakeLikeMode("cuda"), pytest.raises(lamina.UndecidedError, match="one kernel"):
        cell(4, 5)(torch.ones(2, 4))


def test_the_encoders_fast_path_is_refused_until_it_is_switched_off() -> None:
    with FakeLikeMode("cuda"):
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        x = torch.ones(2, 5, 8)
        assert layer(x).device == x.device
        layer.eval()
        with torch.no_grad():
            with pytest.raises(lamina.UndecidedError, match="set_fastpath_enabled"):
                layer(x)
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                assert layer(x).shape == x.shape
            finally:
                torch.backends.mha.set_fastpath_enabled(True)
