"""LoggingTensor over PyTorch's own operator samples: equal to the plain run, but for a short list with reasons."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from lamina import LoggingTensor
from lamina.conformance.sample_limits import TRANSPARENT
from lamina.conformance.sweep import Candidate, Failure, count_cases, operators, shard, sweep

SHARDS = 16
LISTED_SHARE = 0.004  # of all samples: the list must stay short
SKIPPED_SHARE = 0.1  # of a shard's samples at most: those that torch itself refuses
CANDIDATE = Candidate(LoggingTensor, LoggingTensor, lambda instance: instance.elem)


def place(failure: Failure) -> tuple[str, str, str]:
    return failure.op, failure.reason, failure.dtype


@pytest.mark.parametrize("index", range(SHARDS))
def test_every_sample_equals_the_plain_run(index: int) -> None:
    ops = shard(index, SHARDS)
    report = sweep(CANDIDATE, ops, aliasing=True)
    names = {op.formatted_name for op in ops}
    expected = sum((entry.counts() for entry in TRANSPARENT if entry.op in names), Counter[tuple[str, str, str]]())
    found = Counter(place(failure) for failure in report.failures)
    unlisted = [str(failure) for failure in report.failures if place(failure) not in expected]
    assert not unlisted, "\n".join([report.summary(), *unlisted])
    assert found == expected, f"stale or incomplete list: {expected - found} no longer differ, {found - expected} more"
    assert report.skipped <= SKIPPED_SHARE * (report.skipped + report.compared)
    assert report.with_grad > 0


def test_the_list_is_short() -> None:
    listed = sum(sum(entry.samples.values()) for entry in TRANSPARENT)
    assert 0 < listed < LISTED_SHARE * (1 - SKIPPED_SHARE) * count_cases(operators())


def test_the_list_names_operators_and_reasons() -> None:
    assert {entry.op for entry in TRANSPARENT} <= {op.formatted_name for op in operators()}
    assert len({(entry.op, entry.reason) for entry in TRANSPARENT}) == len(TRANSPARENT)
    assert all(entry.why for entry in TRANSPARENT)


def test_the_class_runs_under_its_own_handler() -> None:
    """The candidate is what it claims to be: a wrapper whose results are wrappers."""
    wrapped = CANDIDATE.wrap(torch.arange(3.0))
    assert type(wrapped.sin()) is LoggingTensor
    assert torch.equal(CANDIDATE.unwrap(wrapped.sin()), torch.arange(3.0).sin())
