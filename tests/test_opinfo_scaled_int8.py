"""ScaledInt8Tensor over PyTorch's own operator samples: what the op gives on dequantized operands, to the bit.

An operand that is written holds the op's result, requantized by its own recipe. Gradients are plain. The exceptions are
lists with reasons: ``PRODUCTS``, ``BRANCHES`` and ``CONVERSIONS`` are equal up to rounding, ``ALLOWED`` differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from lamina import ScaledInt8Tensor, WrapperTensor
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

# Matrix products in forward or backward, which an int8 operand computes in another order of sums.
PRODUCTS = frozenset(
    """__rmatmul__ addbmm addmm addmm_decomposed addmv addr baddbmm bmm cdist cholesky_inverse
    cholesky_solve einsum inner linalg_lstsq
    linalg_lstsq_grad_oriented linalg_matrix_power linalg_multi_dot linalg_pinv linalg_pinv_hermitian
    linalg_pinv_singular matmul mm mv nn_functional_bilinear nn_functional_linear nn_functional_linear_cross_entropy
    nn_functional_linear_cross_entropy_chunked nn_functional_linear_cross_entropy_chunked_none
    nn_functional_multi_head_attention_forward nn_functional_scaled_dot_product_attention pca_lowrank pinverse
    svd_lowrank tensordot""".split()
)
# They convert operands: a conversion relabels the payload, which is then rounded once, from ``q * scale`` to the new
# dtype. The plain operand was rounded to the old dtype before.
CONVERSIONS = frozenset(
    """bfloat16 double float half to float_power log_softmax_with_dtype softmax_with_dtype nn_functional_rms_norm
    nn_functional_scaled_dot_product_attention""".split()
)
# C++ takes another branch for a tensor subclass: all singular vectors for the singular values of a norm.
BRANCHES = frozenset("linalg_cond linalg_matrix_norm linalg_norm norm_nuc".split())
TERMS = 25  # the longest contracted dim of a sample
ROUNDINGS = 4  # of a product in a low precision: the weight, the product, its scaling, an addition


def reordered(dtype: torch.dtype) -> float:
    """Two orders of a sum of K products, in a precision of unit roundoff u, differ by at most ``2 (K + 1) u`` times the
    sum of magnitudes, here taken as the largest value of the results. In bfloat16 and float16 sums are float32, and a
    few roundings to the dtype come on top: the plain run rounds the weight and the sum, ours the sum and its multiple.
    """
    unit, sums = torch.finfo(dtype).eps / 2, torch.finfo(torch.promote_types(dtype, torch.float32)).eps / 2
    return 2 * (TERMS + 1) * sums + (ROUNDINGS * unit if unit > sums else 0.0)


def converted(dtype: torch.dtype) -> float:
    """The one rounding to ``dtype`` that is left out, and what a power makes of it: in ``x ** y`` it counts ``y`` times
    for x and ``y log x`` times for y, together less than 32 times for values up to 9.
    """
    return 32 * torch.finfo(dtype).eps / 2


def _loose() -> dict[str, Callable[[torch.dtype], float]]:
    both = {op: lambda dtype: reordered(dtype) + converted(dtype) for op in PRODUCTS & CONVERSIONS}
    return {**dict.fromkeys(PRODUCTS | BRANCHES, reordered), **dict.fromkeys(CONVERSIONS, converted), **both}


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
        ScaledInt8Tensor, wrap, plain_values, base=WrapperTensor, rewrite=rewritten, picks=picks, loose=_loose()
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


@dataclass(frozen=True)
class Allowed:
    """Samples that may differ: operator and stage, how many of the first ``LIMIT`` of rows in each dtype (0: only
    further samples, or other grids), and why.
    """

    op: str
    reason: str
    samples: dict[str, int]
    why: str

    def counts(self) -> Counter[tuple[str, str, str]]:
        return Counter({(self.op, self.reason, dtype): count for dtype, count in self.samples.items()})


def each(count: int, dtypes: Iterable[torch.dtype] = DTYPES) -> dict[str, int]:
    return {str(dtype).removeprefix("torch."): count for dtype in dtypes}


LAPACK = (torch.float32, torch.float64)
RESIZED = "changes the shape of what it writes, which an int8 tensor refuses: scales would belong to other values"
TWICE = "writes its operand twice, which is then requantized twice"
UNWRITTEN = "C++ takes another branch for a tensor subclass, and forgets out= there"
ALLOWED = (
    Allowed("as_strided", "forward: UnwrittenError", each(2), RESIZED),
    Allowed("as_strided_partial_views", "forward: UnwrittenError", each(0), RESIZED),
    Allowed("addbmm", "forward: UnwrittenError", each(3), RESIZED),
    Allowed("matmul", "forward: UnwrittenError", each(1), RESIZED),
    Allowed("linalg_matrix_rank", "forward: values", each(2, LAPACK), UNWRITTEN),
    Allowed("linalg_matrix_rank_hermitian", "forward: values", each(2, LAPACK), UNWRITTEN),
    Allowed("nn_functional_feature_alpha_dropout_with_train", "forward: values", each(2), TWICE),
    Allowed("nn_functional_alpha_dropout", "forward: values", each(1, DTYPES[:2] + DTYPES[3:]), TWICE),
    Allowed("nanmean", "forward: values", each(0), TWICE),
    Allowed(
        "linalg_matrix_power",
        "forward: values",
        each(1, (torch.float64,)),
        "for the power 0 C++ copies the identity into a clone, which is int8, too",
    ),
    Allowed(
        "ormqr",
        "grad: stride",
        each(10, LAPACK),
        "the C++ derivative does not work in place where it sees a tensor subclass: equal values, another stride",
    ),
)


def place(failure: Failure) -> tuple[str, str, str]:
    return failure.op, failure.reason, failure.dtype


def unlisted(report: Report, *more: str) -> list[str]:
    """The failures that are not on the list; ``more`` are reasons that any operator may have."""
    listed = {(entry.op, entry.reason) for entry in ALLOWED}
    return [str(f) for f in report.failures if (f.op, f.reason) not in listed and f.reason not in more]


@pytest.mark.parametrize("index", range(SHARDS))
def test_every_sample_equals_the_op_on_dequantized_operands(index: int, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-samples")
    ops = shard(index, SHARDS)
    limit = None if everything else LIMIT
    report = sweep(ROWS, ops, dtypes=DTYPES, variants=VARIANTS, limit=limit, aliasing=True)
    assert not unlisted(report), "\n".join([report.summary(), *unlisted(report)])
    names = {op.formatted_name for op in ops}
    expected = sum((entry.counts() for entry in ALLOWED if entry.op in names), Counter[tuple[str, str, str]]())
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
    listed = sum(sum(entry.samples.values()) for entry in ALLOWED)
    cases = count_cases(operators(), LIMIT, DTYPES, VARIANTS)
    assert 0 < listed < LISTED_SHARE * (1 - SKIPPED_SHARE) * cases


def test_the_lists_name_operators_and_reasons() -> None:
    names = {op.formatted_name for op in operators()}
    assert names >= {entry.op for entry in ALLOWED} | PRODUCTS | BRANCHES | CONVERSIONS
    assert len({(entry.op, entry.reason) for entry in ALLOWED}) == len(ALLOWED)
    assert all(entry.why for entry in ALLOWED)
