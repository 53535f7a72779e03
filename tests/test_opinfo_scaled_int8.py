"""ScaledInt8Tensor over PyTorch's own operator samples: what the op gives on dequantized operands, to the bit.

An operand that is written holds the op's result, requantized by its own recipe. Gradients are plain. The exceptions are
lists with reasons: ``PRODUCTS``, ``BRANCHES`` and ``CONVERSIONS`` are equal up to rounding, ``REPRESENTATION`` differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lamina import ScaledInt8Tensor, WrapperTensor
from lamina.conformance.sample_limits import BRANCHES, CONVERSIONS, PRODUCTS, REPRESENTATION, tolerances
from lamina.conformance.sweep import (
    DecodingCandidate,
    Failure,
    Report,
    count_cases,
    operators,
    shard,
    sweep,
    sweep_errors,
)
from lamina.subclasses.scaled_int8 import Granularity, PerBlock, PerGroup, PerRow, PerTensor

SHARDS = 16
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.float16)
VARIANTS = ("function", "method", "inplace", "out")
LIMIT = 5  # samples of each operator, dtype and variant; --all-samples takes all
LISTED_SHARE = 0.004  # of all samples: the list must stay short
SKIPPED_SHARE = 0.1  # of a shard's samples at most: those that torch itself refuses


def rewritten(instance: ScaledInt8Tensor, values: torch.Tensor) -> torch.Tensor:
    """What ``instance`` stands for once ``values`` were written to it. A block with NaN or infinity in it reads NaN."""
    bad = ~values.isfinite()
    new = instance.requantize(values.masked_fill(bad, 0.0)).dequantize()
    if not bad.any():
        return new
    grid = instance.granularity
    marks = ScaledInt8Tensor.quantize(bad.float(), grid).scale > torch.finfo(torch.float32).tiny
    lost = ScaledInt8Tensor(torch.ones(values.shape, dtype=torch.int8), marks.float(), None, grid)
    return new.masked_fill(lost.dequantize() > 0, torch.nan)


def plain_values(wrapper: Any) -> torch.Tensor:
    values: torch.Tensor = wrapper.to_plain()
    return values


def candidate(
    grid: Callable[[torch.Tensor], Granularity],
    *,
    symmetric: bool = True,
    picks: Callable[[torch.Tensor], bool] = lambda _: True,
) -> DecodingCandidate:
    def wrap(values: torch.Tensor) -> torch.Tensor:
        return ScaledInt8Tensor.quantize(values, grid(values), symmetric=symmetric)

    return DecodingCandidate(
        ScaledInt8Tensor, wrap, plain_values, base=WrapperTensor, rewrite=rewritten, picks=picks, loose=tolerances()
    )


def half_of_them(values: torch.Tensor) -> bool:
    """Every second tensor, by chance but always the same: the others stay plain."""
    return values.numel() > 0 and int(1e4 * float(values.detach().reshape(-1)[0].abs())) % 2 == 0


def pairs(values: torch.Tensor) -> Granularity:
    """Blocks of two along each even dim, whole odd ones."""
    return PerBlock(tuple(2 if size and size % 2 == 0 else -1 for size in values.shape)) if values.dim() else PerRow()


ROWS = candidate(lambda _: PerRow())
OTHERS = {
    "one scale, asymmetric": candidate(lambda _: PerTensor(), symmetric=False),
    "a scale each": candidate(lambda values: PerGroup(1) if values.dim() else PerTensor()),
    "blocks, asymmetric": candidate(pairs, symmetric=False),
    "rows, beside plain operands": candidate(lambda _: PerRow(), picks=half_of_them),
}


def place(failure: Failure) -> tuple[str, str, str]:
    return failure.op, failure.reason, failure.dtype


def unlisted(report: Report, *more: str) -> list[str]:
    """The failures that are not on the list; ``more`` are reasons that any operator may have."""
    listed = {(entry.op, entry.reason) for entry in REPRESENTATION}
    return [str(f) for f in report.failures if (f.op, f.reason) not in listed and f.reason not in more]


@pytest.mark.parametrize("index", range(SHARDS))
def test_every_sample_equals_the_op_on_dequantized_operands(index: int, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-samples")
    ops = shard(index, SHARDS)
    limit = None if everything else LIMIT
    report = sweep(ROWS, ops, dtypes=DTYPES, variants=VARIANTS, limit=limit, aliasing=True)
    assert not unlisted(report), "\n".join([report.summary(), *unlisted(report)])
    names = {op.formatted_name for op in ops}
    expected = sum((entry.counts() for entry in REPRESENTATION if entry.op in names), Counter[tuple[str, str, str]]())
    found = Counter(place(failure) for failure in report.failures)
    assert everything or found == expected, f"stale list: {expected - found} no longer differ, {found - expected} more"
    assert report.skipped <= SKIPPED_SHARE * (report.skipped + report.compared)
    assert report.with_grad > 0


@pytest.mark.parametrize("turn", range(len(DTYPES)))
@pytest.mark.parametrize("name", OTHERS)
def test_other_grids(name: str, turn: int, request: pytest.FixtureRequest) -> None:
    """Each operator with each of the grids, in one dtype each; all dtypes with --all-samples."""
    everything = request.config.getoption("--all-samples")
    dtypes = DTYPES if everything else DTYPES[turn : turn + 1]
    ops = shard((turn + list(OTHERS).index(name)) % len(DTYPES), len(DTYPES))
    limit = LIMIT if everything else 2
    report = sweep(OTHERS[name], ops, dtypes=dtypes, variants=VARIANTS, limit=limit, aliasing=True)
    # Cuts that do not fall on the borders of groups are refused.
    wrong = unlisted(report, *["forward: GridError"] * name.startswith("blocks"))
    assert not wrong, "\n".join([report.summary(), *wrong])
    assert len(report.failures) <= 0.02 * report.compared
    assert report.with_grad > 0


def test_what_plain_operands_refuse_is_refused_likewise() -> None:
    report = sweep_errors(ROWS, operators())
    assert not report.failures, report.table()
    assert report.compared > 300


def test_the_list_is_short() -> None:
    listed = sum(sum(entry.samples.values()) for entry in REPRESENTATION)
    cases = count_cases(operators(), LIMIT, DTYPES, VARIANTS)
    assert 0 < listed < LISTED_SHARE * (1 - SKIPPED_SHARE) * cases


def test_the_lists_name_operators_and_reasons() -> None:
    names = {op.formatted_name for op in operators()}
    assert names >= {entry.op for entry in REPRESENTATION} | PRODUCTS | BRANCHES | CONVERSIONS
    assert len({(entry.op, entry.reason) for entry in REPRESENTATION}) == len(REPRESENTATION)
    assert all(entry.why for entry in REPRESENTATION)
