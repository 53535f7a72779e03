"""Process groups of a check: what either process raises arrives, and neither waits for one that is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import pytest
import torch
import torch.distributed as dist
from subjects import Clear

from lamina.conformance import Check, MismatchError, NotApplicable, Result, Status, Subject
from lamina.conformance.discovery import subject_of
from lamina.conformance.process import Attempt
from lamina.conformance.world import in_world_of_two, world_of_one

SUBJECT = subject_of(Clear)


def outcome(function: Callable[[Subject], None]) -> Result:
    """The end of a check that does this, in the process that a check has."""
    attempt = Attempt(Check("tried", "distributed", function, "nothing"), SUBJECT)
    wait([attempt.connection], 60)
    return attempt.end()


def of_two(body: Callable[[int, Any], None]) -> Result:
    return outcome(lambda subject: in_world_of_two(subject, body))


def test_one_process_is_a_world_and_leaves_it() -> None:
    def function(subject: Subject) -> None:
        with world_of_one(subject) as mesh:
            assert mesh.size() == dist.get_world_size() == 1
            with pytest.raises(NotApplicable, match="in a process group already"), world_of_one(subject):
                pass
        assert not dist.is_initialized()

    result = outcome(function)
    assert result.status is Status.PASS, result.detail


def test_two_processes_meet() -> None:
    def body(rank: int, mesh: Any) -> None:
        total = torch.tensor(rank + 1)
        dist.all_reduce(total)
        assert (mesh.size(), total.item()) == (2, 3)

    result = of_two(body)
    assert result.status is Status.PASS, result.detail


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_mismatch_on_either_rank_arrives(wrong: int) -> None:
    def body(rank: int, _: Any) -> None:
        if rank == wrong:
            raise MismatchError("x + 1", torch.ones(1), torch.zeros(1))
        dist.barrier()  # the other one waits for a process that is gone

    result = of_two(body)
    assert result.status is Status.FAIL
    where = " (on rank 1)" if wrong else ""
    assert result.detail.splitlines() == [
        f"x + 1{where}",
        "  expected Tensor float32[1] = [1.0]",
        "  got      Tensor float32[1] = [0.0]",
    ]


def test_other_errors_of_rank_1_say_where() -> None:
    def body(rank: int, _: Any) -> None:
        if rank:
            raise KeyError("weight")

    assert "rank 1: KeyError: 'weight'" in of_two(body).detail


def test_a_reason_of_rank_1_arrives() -> None:
    def body(rank: int, _: Any) -> None:
        if rank:
            raise NotApplicable("no shards")

    result = of_two(body)
    assert (result.status, result.detail) == (Status.NOT_APPLICABLE, "no shards")


def test_a_crash_of_rank_1_is_a_failure() -> None:
    def body(rank: int, _: Any) -> None:
        if rank:
            os._exit(7)

    result = of_two(body)
    assert result.status is Status.FAIL
    assert result.detail.splitlines()[::2] == ["rank 1 of 2", "  got      exit code 7"]


def test_rank_1_is_not_waited_for_when_rank_0_has_failed() -> None:
    def body(rank: int, _: Any) -> None:
        if not rank:
            raise ValueError("rank 0")
        time.sleep(600)

    assert "ValueError: rank 0" in of_two(body).detail


def test_a_process_that_is_no_checks_own_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.parent_process", lambda: None)  # a test runner may be a child, too
    with pytest.raises(NotApplicable, match="run it isolated"):
        in_world_of_two(SUBJECT, lambda *_: None)
