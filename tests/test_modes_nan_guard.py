"""NanGuard: the first operator that makes a NaN or an infinity, and no other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.modes import NanGuard, NonFiniteError, NonFiniteWarning

FILE = Path(__file__).name


def kept(run: Callable[[], Any], **options: Any) -> list[tuple[str, str, int]]:
    with NanGuard(on_found="keep", **options) as guard:
        run()
    return [(each.op, each.kind, each.count) for each in guard.found]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_the_op_that_makes_it_is_named_and_what_passes_it_on_is_not(dtype: torch.dtype) -> None:
    x = torch.zeros(3, dtype=dtype)
    found = kept(lambda: (x / x).mul(2).sum())
    assert [each[:2] for each in found] == [("aten::div.Tensor", "NaN")]


def test_infinity_and_the_nan_that_comes_of_it() -> None:
    x, zero = torch.ones(2), torch.zeros(2)

    def run() -> None:
        y = x / zero
        (y + 1).sub(y)

    assert kept(run) == [("aten::div.Tensor", "infinity", 2), ("aten::sub.Tensor", "NaN", 2)]
    assert kept(run, infinity=False) == [("aten::sub.Tensor", "NaN", 2)]


def test_values_that_were_asked_for_are_no_finding() -> None:
    mask = torch.tensor([True, False])
    assert kept(lambda: torch.zeros(2).masked_fill(mask, float("-inf")).softmax(0)) == []
    assert kept(lambda: torch.full((2,), math.nan).add(1)) == []
    assert kept(lambda: torch.empty(5000).new_empty(3000)) == []
    assert kept(lambda: torch.zeros(2).masked_fill(~torch.zeros(2).bool(), float("-inf")).softmax(0)) == [
        ("aten::_softmax", "NaN", 2)
    ]


def test_in_place_ops_are_judged_by_what_was_there_before() -> None:
    def run() -> None:
        y = torch.ones(2)
        y.div_(torch.zeros(2))
        y.add_(1)
        y.sub_(y)

    assert kept(run) == [("aten::div_.Tensor", "infinity", 2), ("aten::sub_.Tensor", "NaN", 2)]


def test_out_variants_and_lists() -> None:
    out = torch.full((2,), math.nan)
    zero = torch.zeros(2)
    assert kept(lambda: torch.div(zero, zero, out=torch.empty(2).fill_(0))) == [("aten::div.out", "NaN", 2)]
    assert kept(lambda: torch._foreach_div_([torch.ones(2)], [zero]))[0][:2] == ("aten::_foreach_div_.List", "infinity")
    assert kept(lambda: out.copy_(zero)) == []


def test_the_backward_names_the_module_of_its_forward() -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt()

    model = nn.Sequential(nn.Identity(), Root())
    x = torch.zeros(3, requires_grad=True)
    with pytest.raises(NonFiniteError, match="in the backward in module 1") as error, NanGuard():
        model(x).sum().backward()
    found = error.value.found
    assert (found.op, found.kind, found.phase, found.module) == ("aten::div.Tensor", "infinity", "backward", "1")
    assert found.site is not None
    assert FILE in found.site


def test_the_site_is_the_line_of_the_program() -> None:
    with NanGuard(on_found="keep") as guard:
        torch.log(torch.tensor([-1.0]))
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "torch.log(torch.tensor([-1" in text
    )
    assert guard.found[0].site == f"{__file__}:{line}"
    assert guard.found[0].call == "aten::log(float32[1])"


def test_the_optimizer_has_its_own_phase() -> None:
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    with NanGuard(on_found="keep") as guard:
        torch.optim.SGD([p], lr=3e38, weight_decay=1e3, foreach=False).step()
    assert {each.phase for each in guard.found} == {"optimizer"}


def test_wrappers_are_looked_at_by_their_inner_tensors() -> None:
    x = LoggingTensor(torch.zeros(2))
    assert kept(lambda: x / x) == [("aten::div.Tensor", "NaN", 2)]
    q = ScaledInt8Tensor.quantize(torch.ones(2, 3))
    with torch.no_grad():
        found = kept(lambda: q.div_(0))
    assert len(found) == 1
    assert found[0][0].startswith("aten::div_")


def test_sparse_results_are_looked_at_by_their_values() -> None:
    sparse = torch.eye(3).to_sparse()
    assert [each[1:] for each in kept(lambda: sparse / 0)][:1] == [("infinity", 3)]
    assert kept(lambda: sparse * 2) == []


def test_warn_once_for_each_place() -> None:
    zero = torch.zeros(2)
    with warnings.catch_warnings(record=True) as seen, NanGuard(on_found="warn") as guard:
        warnings.simplefilter("always")
        for _ in range(3):
            zero / zero
    assert [each.category for each in seen] == [NonFiniteWarning]
    assert len(guard.found) == 3


def test_raises_and_the_run_ends_there() -> None:
    zero, ran = torch.zeros(2), []

    def run() -> None:
        zero / zero
        ran.append(1)

    with pytest.raises(NonFiniteError, match=r"aten::div.Tensor made 2 x NaN"), NanGuard():
        run()
    assert ran == []
    assert not (zero / zero).isfinite().any()  # the guard is off


def test_bad_option() -> None:
    with pytest.raises(ValueError, match="'raise', 'warn' and 'keep'"):
        NanGuard(on_found="stop")  # type: ignore[arg-type]
