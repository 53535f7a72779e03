"""Operator samples that no class passes, or only up to rounding, and why: lists by kind of class.

They hold for every class, since the reason is what torch's C++ does with any tensor subclass, or what it means to stand
for values that are not held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from .subject import Kind

REAL = ("float32", "bfloat16", "float64", "float16")
LAPACK = ("float32", "float64")


@dataclass(frozen=True)
class Allowed:
    """Samples that may differ: operator and stage, and why.

    ``samples``: how many of the first five of each variant do in lamina's own class of that kind, by dtype; none where
    only further samples do, or those of other recipes.
    """

    op: str
    reason: str
    samples: Mapping[str, int]
    why: str

    def counts(self) -> Counter[tuple[str, str, str]]:
        """How many samples, by operator, stage and dtype."""
        return Counter({(self.op, self.reason, dtype): count for dtype, count in self.samples.items()})


def each(count: int, dtypes: Iterable[str] = REAL) -> dict[str, int]:
    """As many in each dtype."""
    return dict.fromkeys(dtypes, count)


ZEROS = "for an empty matrix C++ answers at::zeros above dispatch, which is plain"
RESIZED = "changes the shape of what it writes: what an encoded operand holds would belong to other values"
TWICE = "writes its operand twice, which is then encoded twice"
FOLDED = "C++ folds a batch into one product unless it sees a tensor subclass: another order of sums"
UNWRITTEN = "C++ takes another branch for a tensor subclass, and forgets out= there"

TRANSPARENT = (
    Allowed(
        "tensor_split",
        "forward: RuntimeError",
        each(6, ("float32", "complex64", "int64", "bool", "bfloat16")),
        "C++ reads the indices, here a wrapped tensor, above dispatch",
    ),
    Allowed("linalg_matrix_rank", "forward: type", each(3, ("float32", "complex64")), ZEROS),
    Allowed("linalg_matrix_rank_hermitian", "forward: type", each(3, ("float32", "complex64")), ZEROS),
    Allowed("linalg_matrix_rank", "forward: values", each(0), UNWRITTEN),
    Allowed("linalg_matrix_rank_hermitian", "forward: values", each(0), UNWRITTEN),
    Allowed("matmul", "forward: values", each(0), FOLDED),
)
REPRESENTATION = (
    Allowed("as_strided", "forward: UnwrittenError", each(2), RESIZED),
    Allowed("as_strided_partial_views", "forward: UnwrittenError", each(0), RESIZED),
    Allowed("addbmm", "forward: UnwrittenError", each(3), RESIZED),
    Allowed("matmul", "forward: UnwrittenError", each(1), RESIZED),
    Allowed("linalg_matrix_rank", "forward: values", each(2, LAPACK), UNWRITTEN),
    Allowed("linalg_matrix_rank_hermitian", "forward: values", each(2, LAPACK), UNWRITTEN),
    Allowed("nn_functional_feature_alpha_dropout_with_train", "forward: values", each(2), TWICE),
    Allowed("nn_functional_alpha_dropout", "forward: values", each(1, ("float32", "bfloat16", "float16")), TWICE),
    Allowed("nanmean", "forward: values", each(0), TWICE),
    Allowed(
        "linalg_matrix_power",
        "forward: values",
        each(1, ("float64",)),
        "for the power 0 C++ copies the identity into a clone, which is encoded, too",
    ),
)
# The ``op`` stands for all: a clear refusal, by a class that has no rule for the op.
REFUSED = Allowed("*", "forward: UnwrittenError", {}, "changes the shape or stride of an encoded operand")
ALLOWED = {Kind.TRANSPARENT: TRANSPARENT, Kind.REPRESENTATION: REPRESENTATION, Kind.FAKE: ()}


def reason_of(op: str, stage: str, kind: Kind) -> str | None:
    """Why samples of an operator may differ in that stage; None if they may not."""
    entries = [*ALLOWED[kind], *[REFUSED] * (kind is Kind.REPRESENTATION)]
    return next((each.why for each in entries if each.op in (op, "*") and each.reason == stage), None)


# Matrix products in forward or backward, which an encoded operand computes in another order of sums.
PRODUCTS = frozenset(
    """__rmatmul__ addbmm addmm addmm_decomposed addmv addr baddbmm bmm cdist cholesky_inverse
    cholesky_solve einsum inner linalg_lstsq
    linalg_lstsq_grad_oriented linalg_matrix_power linalg_multi_dot linalg_pinv linalg_pinv_hermitian
    linalg_pinv_singular matmul mm mv nn_functional_bilinear nn_functional_linear nn_functional_linear_cross_entropy
    nn_functional_linear_cross_entropy_chunked nn_functional_linear_cross_entropy_chunked_none
    nn_functional_multi_head_attention_forward nn_functional_scaled_dot_product_attention pca_lowrank pinverse
    svd_lowrank tensordot""".split()
)
# They convert operands: a conversion may relabel the payload, which is then rounded once, from ``q * scale`` to the new
# dtype. The plain operand was rounded to the old dtype before.
CONVERSIONS = frozenset(
    """bfloat16 double float half to float_power log_softmax_with_dtype softmax_with_dtype nn_functional_rms_norm
    nn_functional_scaled_dot_product_attention""".split()
)
# C++ takes another branch for a tensor subclass: all singular vectors for the singular values of a norm.
BRANCHES = frozenset("linalg_cond linalg_matrix_norm linalg_norm norm_nuc".split())
# They fill a copy of their operand: what a class that rounds by chance makes of the numbers can't be foretold.
FILLS = frozenset("cauchy exponential geometric log_normal normal_in_place uniform".split())
TERMS = 25  # the longest contracted dim of a sample
ROUNDINGS = 4  # of a product in a low precision: the weight, the product, its scaling, an addition


def reordered(dtype: torch.dtype) -> float:
    """Two orders of a sum of K products, in a precision of unit roundoff u, differ by at most ``2 (K + 1) u`` times the
    sum of magnitudes, here taken as the largest value of the results. In bfloat16 and float16 sums are float32, and a
    few roundings to the dtype come on top: the plain run rounds the weight and the sum, the other the sum and its
    multiple.
    """
    unit, sums = torch.finfo(dtype).eps / 2, torch.finfo(torch.promote_types(dtype, torch.float32)).eps / 2
    return 2 * (TERMS + 1) * sums + (ROUNDINGS * unit if unit > sums else 0.0)


def converted(dtype: torch.dtype) -> float:
    """The one rounding to ``dtype`` that is left out, and what a power makes of it: in ``x ** y`` it counts ``y`` times
    for x and ``y log x`` times for y, together less than 32 times for values up to 9.
    """
    return 32 * torch.finfo(dtype).eps / 2


def tolerances() -> dict[str, Callable[[torch.dtype], float]]:
    """Of a representation's operators: how far a result may be off in a dtype, in parts of its largest value."""
    both = {op: lambda dtype: reordered(dtype) + converted(dtype) for op in PRODUCTS & CONVERSIONS}
    return {**dict.fromkeys(PRODUCTS | BRANCHES, reordered), **dict.fromkeys(CONVERSIONS, converted), **both}
