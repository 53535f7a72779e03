"""Modules that claim the CPU, against the real CPU: results, what is saved for the backward, and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lamina
from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode
from lamina.subclasses.core.fields import tensors_in

Case = tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]


def x(*shape: int) -> torch.Tensor:
    return torch.rand(shape)


def labels(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last)


CASES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(8, 4), (x(2, 3, 8),)),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), (x(2, 3), x(2, 4))),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (x(2, 3, 8),)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (x(2, 3, 8, 8),)),
    "conv2d, channels last": (lambda: nn.Conv2d(3, 4, 3), (last(x(2, 3, 8, 8)),)),
    "conv2d, depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), (x(2, 4, 8, 8),)),
    "conv2d, dilated": (lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2), (x(2, 4, 8, 8),)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (x(1, 2, 4, 4, 4),)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (x(2, 3, 8, 8),)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (x(2, 3, 4, 4),)),
    "batch_norm, channels last": (lambda: nn.BatchNorm2d(3), (last(x(2, 3, 4, 4)),)),
    "batch_norm, evaluated": (lambda: nn.BatchNorm2d(3).eval(), (x(2, 3, 4, 4),)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (x(2, 4, 5),)),
    "layer_norm": (lambda: nn.LayerNorm(8), (x(2, 8),)),
    "rms_norm": (lambda: nn.RMSNorm(8), (x(2, 8),)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3), (x(2, 3, 4, 4),)),
    "max_pool": (lambda: nn.MaxPool2d(2), (x(2, 3, 4, 4),)),
    "avg_pool": (lambda: nn.AvgPool2d(2), (x(2, 3, 4, 4),)),
    "adaptive_avg_pool": (lambda: nn.AdaptiveAvgPool2d(2), (x(2, 3, 4, 4),)),
    "adaptive_avg_pool to 1": (lambda: nn.AdaptiveAvgPool2d(1), (x(2, 3, 4, 4),)),
    "embedding": (lambda: nn.Embedding(10, 4, padding_idx=0), (labels(2, 3),)),
    "embedding_bag": (lambda: nn.EmbeddingBag(10, 4), (labels(2, 3),)),
    "lstm_cell": (lambda: nn.LSTMCell(4, 5), (x(2, 4),)),
    "gru_cell": (lambda: nn.GRUCell(4, 5), (x(2, 4),)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (x(3, 2, 8), x(3, 2, 8), x(3, 2, 8))),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, batch_first=True), (x(3, 2, 8),)),
    "decoder layer": (lambda: nn.TransformerDecoderLayer(8, 2), (x(3, 2, 8), x(3, 2, 8))),
    "prelu": (nn.PReLU, (x(2, 3),)),
    "gelu": (nn.GELU, (x(3),)),
    "softmax": (lambda: nn.Softmax(-1), (x(2, 4),)),
    "dropout": (nn.Dropout, (x(2, 4),)),
    "rrelu": (nn.RReLU, (x(2, 4),)),
    "cross_entropy": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (x(2, 4, 3), labels(2, 3))),
    "bce_with_logits": (nn.BCEWithLogitsLoss, (x(2, 4), x(2, 4))),
    "kl_div": (lambda: nn.KLDivLoss(reduction="batchmean"), (x(2, 4), x(2, 4))),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (x(2, 3, 4, 4),)),
    "unfold": (lambda: nn.Unfold(2), (x(2, 3, 4, 4),)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (x(2, 4),)),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), (x(2, 4),)),
}


def known(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


def trained(module: nn.Module, inputs: list[torch.Tensor]) -> dict[str, Any]:
    """What is known of the results, of what is saved, and of the gradients."""
    saved: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(known(tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = list(tensors_in(module(*inputs)))
    sum(each.sum() for each in out).backward()
    return {
        "results": [(known(each), type(each.grad_fn).__name__) for each in out],
        "saved": saved,
        "gradients": [known(each.grad) for each in (*module.parameters(), *inputs)],
        "buffers": [known(each) for each in module.buffers()],
    }


def leaves(inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [each.detach().requires_grad_(each.is_floating_point()) for each in inputs]


@pytest.mark.parametrize("name", CASES)
def test_a_module_that_claims_the_cpu_is_as_on_the_real_cpu(name: str) -> None:
    make, inputs = CASES[name]
    module = make()
    expected = trained(copy.deepcopy(module), leaves(inputs))
    lamina.fake_like(module)
    fakes = [FakeLikeTensor.from_tensor(each) for each in leaves(inputs)]
    with FakeLikeMode():
        found = trained(module, fakes)
    assert all(type(each) is FakeLikeTensor for each in fakes)
    assert expected["saved"] or name in (
        "avg_pool",
        "adaptive_avg_pool",
        "adaptive_avg_pool to 1",
        "upsample",
        "unfold",
    )
    assert found == expected


def test_a_functional_composite_is_as_on_the_real_cpu() -> None:
    def run() -> list[Any]:
        q = torch.ones(2, 3, 4, requires_grad=True)
        out = F.multi_head_attention_forward(
            q, q, q, 4, 2, torch.ones(12, 4), torch.ones(12), None, None, False, 0.0, torch.ones(4, 4), torch.ones(4)
        )
        return [known(each) for each in tensors_in(out)]

    expected = run()
    with FakeLikeMode():
        assert run() == expected
