"""Wrong calls, and odd ones: what real kernels say to operands of other dtypes and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode

aten = torch.ops.aten
Call = Callable[[], Any]


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def places(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def outcome(call: Call) -> Any:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error)
    return [(tuple(each.shape), each.stride(), each.dtype) for each in torch.utils._pytree.tree_leaves(result)]


def agree(call: Call, device: str = "cpu") -> Any:
    expected = outcome(call)
    with FakeLikeMode(device):
        assert outcome(call) == expected
    return expected


PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "mm": lambda one, other: ones(2, 3, dtype=one) @ ones(3, 4, dtype=other),
    "mv": lambda one, other: ones(2, 3, dtype=one) @ ones(3, dtype=other),
    "bmm": lambda one, other: ones(5, 2, 3, dtype=one) @ ones(5, 3, 4, dtype=other),
    "dot": lambda one, other: ones(3, dtype=one) @ ones(3, dtype=other),
    "vdot": lambda one, other: torch.vdot(ones(3, dtype=one), ones(3, dtype=other)),
    "linear": lambda one, other: F.linear(ones(2, 3, dtype=one), ones(4, 3, dtype=other)),
    "linear with bias": lambda one, other: F.linear(ones(2, 3, dtype=one), ones(4, 3, dtype=one), ones(4, dtype=other)),
    "baddbmm": lambda one, other: torch.baddbmm(ones(5, 2, 4, dtype=one), ones(5, 2, 3), ones(5, 3, 4, dtype=other)),
    "addbmm": lambda one, other: torch.addbmm(ones(2, 4, dtype=one), ones(5, 2, 3), ones(5, 3, 4, dtype=other)),
    "addmv": lambda one, other: torch.addmv(ones(2), ones(2, 3, dtype=one), ones(3, dtype=other)),
    "addmm_": lambda one, other: ones(2, 4).addmm_(ones(2, 3, dtype=one), ones(3, 4, dtype=other)),
    "mm, out": lambda one, other: torch.mm(ones(2, 3, dtype=one), ones(3, 4, dtype=other), out=ones(2, 4, dtype=one)),
    "conv": lambda one, other: F.conv2d(ones(1, 2, 4, 4, dtype=one), ones(3, 2, 2, 2, dtype=other)),
    "attention": lambda one, other: F.scaled_dot_product_attention(
        *(ones(1, 2, 3, 4, dtype=dtype) for dtype in (one, other, one))
    ),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("name", PRODUCTS)
def test_factors_of_two_dtypes_are_refused_on_every_device(name: str, other: torch.dtype, device: str) -> None:
    assert issubclass(agree(lambda: PRODUCTS[name](torch.float32, other), device), RuntimeError)


@pytest.mark.parametrize("name", PRODUCTS)
def test_factors_of_one_dtype_are_not(name: str) -> None:
    assert isinstance(agree(lambda: PRODUCTS[name](torch.float32, torch.float32)), list)
    with FakeLikeMode("cuda"):
        PRODUCTS[name](torch.float32, torch.float32)


def test_meta_takes_any() -> None:
    """As the meta device itself does."""
    assert torch.mm(ones(2, 3).to("meta"), ones(3, 4).to("meta", torch.float64)).shape == (2, 4)
    with FakeLikeMode("meta"):
        assert PRODUCTS["mm"](torch.float32, torch.float64).shape == (2, 4)


WRONG: dict[str, Call] = {
    "softmax, dim": lambda: ones(2).softmax(3),
    "sort, dim": lambda: ones(3).sort(2),
    "max of nothing": lambda: ones(0).max(),
    "max along nothing": lambda: ones(0, 3).max(0),
    "index_select, index": lambda: ones(2, 3).index_select(0, ones(2)),
    "index_fill, index": lambda: ones(2, 3).index_fill(0, ones(2), 1.0),
    "index_add, source": lambda: ones(3, 3).index_add(0, places(3), ones(1)[0]),
    "put, sizes": lambda: ones(4).put(places(3), ones(2)),
    "put, dtypes": lambda: ones(4, dtype=torch.float64).put_(places(3), ones(3)),
    "index_copy, dtypes": lambda: ones(4, dtype=torch.float64).index_copy_(0, places(3), ones(3)),
    "index_put, sizes": lambda: aten.index_put(ones(4, 2), [places(3)], ones(5, 2)),
    "index_put, index": lambda: aten.index_put(ones(4, 2), [ones(3)], ones(3, 2)),
    "select_scatter, size": lambda: ones(4, 2).select_scatter(ones(3), 0, 1),
    "diagonal_scatter, size": lambda: ones(4, 2).diagonal_scatter(ones(3)),
    "layer_norm, weight": lambda: F.layer_norm(ones(2, 3), (3,), ones(3, dtype=torch.float64)),
    "batch_norm, weight": lambda: F.batch_norm(ones(2, 3), None, None, ones(3, dtype=torch.float64), training=True),
    "cross_entropy, target": lambda: F.cross_entropy(ones(2, 3), ones(2, dtype=torch.bool)),
    "cross, dtypes": lambda: torch.linalg.cross(ones(2, 3), ones(2, 3, dtype=torch.float64)),
    "cdist, dtypes": lambda: torch.cdist(ones(2, 3), ones(2, 3, dtype=torch.float64)),
    "polar, dtypes": lambda: torch.polar(ones(3), ones(3, dtype=torch.float64)),
    "grid_sample, dtypes": lambda: F.grid_sample(
        ones(1, 1, 2, 2), ones(1, 2, 2, 2, dtype=torch.float64), align_corners=False
    ),
    "interpolate to nothing": lambda: F.interpolate(ones(1, 1, 4, 4), size=0, mode="bilinear"),
    "conv_transpose, output padding": lambda: F.conv_transpose1d(ones(1, 2, 4), ones(2, 3, 2), output_padding=7),
    "conv, no kernel": lambda: F.conv1d(ones(1, 2, 4), ones(3, 2, 0)),
    "adaptive_avg_pool of nothing": lambda: F.adaptive_avg_pool2d(ones(1, 2, 0, 4), 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_refused_as_on_the_real_cpu(name: str) -> None:
    assert isinstance(agree(WRONG[name]), type)


def test_sizes_of_large_operands_are_not_those_of_a_trial() -> None:
    """Groups and blocks don't shrink with the tensors."""
    agree(lambda: F.conv2d(ones(1, 64, 40, 40), ones(64, 16, 3, 3), groups=4))
    agree(lambda: F.pixel_shuffle(ones(1, 36, 40, 40), 6))
    agree(lambda: F.group_norm(ones(4, 36, 40, 40), 6, ones(36)))
    agree(lambda: ones(100, 200).repeat(2, 3).unfold(0, 3, 2).softmax(-1))


def test_addr_promotes() -> None:
    for dtypes in ((torch.float64, torch.float32, torch.float32), (torch.int64, torch.float32, torch.bfloat16)):
        agree(
            lambda dtypes=dtypes: torch.addr(
                ones(2, 3, dtype=dtypes[0]), ones(2, dtype=dtypes[1]), ones(3, dtype=dtypes[2])
            )
        )  # type: ignore[misc]


EMPTY: dict[str, Call] = {
    "in the usual order": lambda: (ones(5, 0), ones(1)),
    "transposed": lambda: (ones(10, 5).t()[:, :0], ones(5, 0)),
    "expanded": lambda: (ones(5, 1).expand(5, 10)[:, :0], ones(5, 0)),
    "channels last": lambda: (ones(2, 3, 4, 0).to(memory_format=torch.channels_last), ones(2, 3, 4, 0)),
    "both transposed": lambda: (ones(10, 5).t()[:, :0],) * 2,
    "broadcast": lambda: (ones(5, 1), ones(0)),
    "transposed and broadcast": lambda: (ones(0, 4, 5).transpose(0, 2), ones(4, 1)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_result_is_laid_out_as_by_real_kernels(name: str) -> None:
    for function in (torch.add, torch.atan2, torch.maximum, torch.lt, torch.fmod):
        agree(lambda function=function: function(*EMPTY[name]()))  # type: ignore[misc]


def test_a_real_tensor_of_another_dtype_is_a_factor_as_well() -> None:
    with pytest.raises(RuntimeError, match=r"same dtype, but got torch\.float32, torch\.float64"):
        torch.mv(FakeLikeTensor.from_tensor(ones(2, 3), "cuda"), FakeLikeTensor.from_tensor(ones(3).double(), "cuda"))
