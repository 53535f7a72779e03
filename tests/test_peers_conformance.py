"""The kit run on wrappers that others wrote: it finishes, and finds what is known to be wrong with them, by name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.testing._internal.logging_tensor import LoggingTensor
from torch.testing._internal.two_tensor import TwoTensor

from lamina.conformance import Report, Status, check_subclass
from lamina.conformance.check import chosen

Subject = tuple[Any, Callable[[torch.Tensor], Any]]


@cache
def torchao() -> Any:
    """torchao logs the kernels that it can't load while it is imported."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    import torchao.quantization

    return torchao.quantization


def two() -> Subject:
    return TwoTensor, lambda plain: TwoTensor(plain, plain.clone())


def logged() -> Subject:
    return LoggingTensor, LoggingTensor


def int8() -> Subject:
    ao = torchao()
    return ao.Int8Tensor, lambda plain: ao.Int8Tensor.from_hp(plain, ao.PerRow())


def asymmetric_int8() -> Subject:
    ao = torchao()
    mapping = ao.MappingType.ASYMMETRIC
    return ao.Int8Tensor, lambda plain: ao.Int8Tensor.from_hp(plain, ao.PerRow(), mapping)


def run(peer: Callable[[], Subject], **options: Any) -> Report:
    cls, make = peer()
    return check_subclass(cls, make, **options)


@pytest.mark.parametrize(
    ("peer", "check", "text"),
    [
        # handlers that read their arguments by position
        (int8, "linear_takes_keywords", "F.linear(t, x, bias=b)"),
        (int8, "products_take_keywords", "F.linear(input, x, bias=bias)"),
        # a weight whose gradient stays None beside an input that requires grad
        (int8, "weights_get_gradients_beside_inputs", "expected a gradient, or an error\n  got      None"),
        # a fast product that leaves out the zero point
        (asymmetric_int8, "products_use_the_values", "F.linear(input, x)"),
        # casts and autocast are ignored
        (int8, "a_module_is_cast", "layer.half().weight\n  expected shape (4, 8), torch.float16"),
        (
            int8,
            "autocast_gives_the_dtype",
            "expected shape (5, 4), torch.bfloat16, cpu\n  got ",
        ),
        # answers that come of one inner tensor
        (two, "equal_asks_every_inner_tensor", "expected False\n  got      True"),
        (two, "item_asks_every_inner_tensor", "the last inner tensor of x changed"),
        # conj and neg bits are lost
        (two, "complex_values_are_right", "conj"),
        (two, "complex_gradients_are_right", "backward()"),
        (logged, "complex_values_are_right", "conj"),
        (logged, "complex_gradients_are_right", "backward()"),
        # sharing memory ends the process
        (two, "share_memory_shares_every_leaf", "crashes: the process ended with SIGSEGV"),
        (logged, "share_memory_shares_every_leaf", "crashes: the process ended with SIGSEGV"),
        (int8, "share_memory_shares_every_leaf", "crashes: the process ended with SIGSEGV"),
        (two, "a_module_is_shared", "crashes: the process ended with SIGSEGV"),
        (logged, "a_module_is_shared", "crashes: the process ended with SIGSEGV"),
        (int8, "a_module_is_shared", "crashes: the process ended with SIGSEGV"),
    ],
)
def test_a_known_defect_is_found_by_its_check(peer: Callable[[], Subject], check: str, text: str) -> None:
    result = run(peer, only=[check]).results[0]
    assert result.name == check
    assert result.status is Status.FAIL
    assert text in result.detail


@pytest.mark.parametrize("check", ["linear_takes_keywords", "a_module_is_cast", "equal_asks_every_inner_tensor"])
def test_these_checks_do_not_fail_everything(check: str) -> None:
    """What one peer gets wrong another gets right: the check tells them apart."""
    assert {run(peer, only=[check]).results[0].status for peer in (two, logged, int8)} > {Status.FAIL}


@pytest.mark.slow
@pytest.mark.parametrize("peer", [two, logged, int8])
def test_a_run_finishes(peer: Callable[[], Subject]) -> None:
    report = run(peer)
    assert [each.name for each in report.results] == [each.name for each in chosen(None, full=False)]
    assert len(report.of(Status.FAIL)) > 10
    assert len(report.of(Status.PASS)) > 40
    for each in report.of(Status.FAIL):
        assert each.detail.strip()
        assert "/conformance/" not in each.detail
