"""Torch's allocator for CUDA, by its rules: worked out by hand."""

from __future__ import annotations

import pytest
import torch

import lamina
from lamina.modes.plan.caching_allocator import CachingAllocator

MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "given", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (19 * MIB, 20 * MIB, 20 * MIB),  # what is over is not above 1 MiB: not cut off
        (11 * MIB, 12 * MIB, 12 * MIB),
        (31 * MIB + 5, 32 * MIB, 32 * MIB),
    ],
)
def test_sizes(asked: int, given: int, reserved: int) -> None:
    allocator = CachingAllocator()
    assert allocator.take(asked).nbytes == allocator.allocated == given
    assert allocator.reserved == reserved


def test_the_smallest_free_piece_is_taken_and_neighbours_unite() -> None:
    allocator = CachingAllocator()
    pieces = [allocator.take(4 * MIB) for _ in range(5)]
    assert allocator.reserved == 20 * MIB
    allocator.give(pieces[0], 4 * MIB)
    allocator.give(pieces[2], 4 * MIB)
    assert allocator.take(8 * MIB).address == 20 * MIB  # a new segment: the two are not neighbours
    allocator.give(pieces[1], 4 * MIB)
    united = allocator.take(9 * MIB)
    assert (united.address, united.nbytes) == (0, 9 * MIB)
    assert allocator.take(3 * MIB).address == 9 * MIB
    assert allocator.reserved == 40 * MIB


def test_segments_are_given_back_where_the_device_is_full() -> None:
    allocator = CachingAllocator(limit=50 * MIB)
    allocator.give(allocator.take(30 * MIB), 30 * MIB)
    kept = allocator.take(1000)
    assert allocator.reserved == 32 * MIB
    allocator.take(40 * MIB)
    assert (allocator.reserved, allocator.most_reserved) == (42 * MIB, 42 * MIB)
    allocator.take(40 * MIB)  # there is no room: how much is missing shows
    assert allocator.most_reserved == 82 * MIB
    assert kept.nbytes == 1024


def test_a_plan_with_the_allocator() -> None:
    def step() -> None:
        first = torch.empty(3 * MIB, dtype=torch.uint8)
        second = torch.empty(100, dtype=torch.uint8)
        del first
        third = torch.empty(2 * MIB, dtype=torch.uint8)
        del second, third

    plan = lamina.plan_step(step, device="cuda", allocator="caching")
    assert plan.asked_bytes == 3 * MIB + 100
    assert plan.peak_bytes == 3 * MIB + 512
    assert plan.reserved_bytes == plan.needed_bytes == 22 * MIB
    assert plan.by_category["inputs and buffers"] == plan.peak_bytes
