"""Whether FSDP2 takes a class, as one call."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear
from torch.testing._internal.two_tensor import TwoTensor

import lamina
from lamina.conformance.fsdp2 import problem_with_hooks


class Short(Clear):
    def fsdp_post_all_gather(self, outputs: Any, metadata: Any, dtype: torch.dtype) -> Any:  # type: ignore[override]
        return super().fsdp_post_all_gather(outputs, metadata, dtype)


def test_hooks_are_those_that_fsdp2_calls() -> None:
    assert problem_with_hooks(lamina.WrapperTensor) is None
    assert problem_with_hooks(lamina.ScaledInt8Tensor) is None
    name, wanted, got = problem_with_hooks(TwoTensor) or ("", "", "")
    assert (name, got) == ("fsdp_pre_all_gather", "nothing")
    assert "mp_policy" in wanted
    name, wanted, got = problem_with_hooks(Short) or ("", "", "")
    assert name == "fsdp_post_all_gather"
    assert "out" in wanted
    assert "out:" not in got


def test_the_report_is_that_of_all_distributed_checks() -> None:
    quick = lamina.conformance.check_fsdp2_ready(Clear, only=["fsdp2_finds_its_hooks", "inner_tensors_keep_the_rank"])
    assert quick.ok
    assert [result.name for result in quick.results] == ["fsdp2_finds_its_hooks", "inner_tensors_keep_the_rank"]
    report = lamina.conformance.check_fsdp2_ready(TwoTensor, lambda plain: TwoTensor(plain, plain.clone()))
    names = {result.name for result in report.results}
    assert names == {check.name for check in lamina.conformance.every_check() if check.group == "distributed"}
    failed = {result.name for result in report.results if result.status is lamina.conformance.Status.FAIL}
    assert {"fsdp2_finds_its_hooks", "fully_shard_gathers_the_class"} <= failed
