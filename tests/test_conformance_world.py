"""Process groups of a check: what either process raises arrives, and neither waits for one that is gone."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from subjects import Clear

from lamina.conformance import MismatchError, NotApplicable, Subject
from lamina.conformance.discovery import subject_of
from lamina.conformance.world import in_world_of_two, world_of_one

# Since Python 3.12 a fork beside threads warns; a check runs in a process that has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(Clear)


def test_one_process_is_a_world_and_leaves_it(subject: Subject) -> None:
    with world_of_one(subject) as mesh:
        assert mesh.size() == dist.get_world_size() == 1
        with pytest.raises(NotApplicable, match="in a process group already"), world_of_one(subject):
            pass
    assert not dist.is_initialized()


def test_two_processes_meet(subject: Subject) -> None:
    def body(rank: int, mesh: Any) -> None:
        total = torch.tensor(rank + 1)
        dist.all_reduce(total)
        assert (mesh.size(), total.item()) == (2, 3)

    in_world_of_two(subject, body)
    assert not dist.is_initialized()


def test_a_mismatch_on_either_rank_is_raised(subject: Subject) -> None:
    for wrong in (0, 1):

        def body(rank: int, mesh: Any, wrong: int = wrong) -> None:
            if rank == wrong:
                raise MismatchError("x + 1", torch.ones(1), torch.zeros(1))
            dist.barrier()  # the other one waits for a process that is gone

        with pytest.raises(MismatchError, match=r"x \+ 1") as caught:
            in_world_of_two(subject, body)
        assert (caught.value.expected, caught.value.got) == (
            "Tensor float32[1] = [1.0]",
            "Tensor float32[1] = [0.0]",
        )


def test_other_errors_of_rank_1_say_where(subject: Subject) -> None:
    def body(rank: int, mesh: Any) -> None:
        if rank:
            raise KeyError("weight")

    with pytest.raises(RuntimeError, match="rank 1: KeyError: 'weight'"):
        in_world_of_two(subject, body)


def test_a_reason_of_rank_1_arrives(subject: Subject) -> None:
    def body(rank: int, mesh: Any) -> None:
        if rank:
            raise NotApplicable("no shards")

    with pytest.raises(NotApplicable, match="no shards"):
        in_world_of_two(subject, body)


def test_a_crash_of_rank_1_is_a_mismatch(subject: Subject) -> None:
    def body(rank: int, mesh: Any) -> None:
        if rank:
            os._exit(7)

    with pytest.raises(MismatchError, match=r"rank 1 of 2\n.*\n.*exit code 7"):
        in_world_of_two(subject, body)
