"""Threads: two that use the class at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..check import check
from ..subject import Subject

ROUNDS = 20


def _steps(subject: Subject, leaves: list[Any], shared: Any) -> list[Any]:
    """Forward, backward and a view of tensors of this thread's own, and of one that all read."""
    results: list[Any] = []
    for leaf in leaves:
        product = torch.nn.functional.linear(subject.plain(3, 8), leaf)
        product.square().sum().backward()
        rows = torch.nn.functional.linear(subject.plain(3, 8), shared.detach())
        results += [subject.values(each) for each in (product.detach(), leaf.grad, leaf.detach().t(), rows)]
    return results


def _leaves(subject: Subject, number: int) -> list[Any]:
    # Made before: a class that rounds at random draws from the one generator of the process.
    return [subject.new(4, 8, seed=100 * number + index, grad=True) for index in range(ROUNDS)]


@check("memory", "two threads at once give other results than one")
def threads_give_the_results_of_one(subject: Subject) -> None:
    """Two threads that run forwards and backwards at once get bit for bit what they get one after the other: no state
    of a call is kept in the class or the module. Data loaders, servers and pipelines run so."""
    shared = subject.new(4, 8)
    leaves = [_leaves(subject, number) for number in range(2)]
    with ThreadPoolExecutor(len(leaves)) as pool:
        running = [pool.submit(_steps, subject, own, shared) for own in leaves]
        got = [each.result() for each in running]
    # Afterwards: what a class computes once, on first use, is computed by two threads at once.
    expected = [_steps(subject, _leaves(subject, number), shared) for number in range(2)]
    for number, (one, wanted) in enumerate(zip(got, expected, strict=True)):
        subject.same(f"forward, backward and views of thread {number} of 2, a list of results", one, wanted)
