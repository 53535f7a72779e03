"""FakeLikeTensor over PyTorch's own operator samples: metadata and errors of real execution, but for a short list.

By default the first samples of each operator, in four dtypes and four variants; all of them with ``--all-samples``
(100 000 cases, 5 minutes).
"""

from __future__ import annotations

import fake_samples
import pytest
import torch
from fake_samples import DTYPES

from lamina.conformance.sweep import operators, shard

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
pytestmark = pytest.mark.skipif(
    VERSION < (2, 13), reason="the fakes of older versions have other errors: fft's strides"
)

SHARDS = 8
FIRST = 3  # samples of each operator, dtype and variant

# A FakeLikeTensor is strided; these take or give sparse tensors.
SPARSE = {"sparse_sampled_addmm", "sparse_mm_reduce", "to_sparse"}

_VALUES = "depends on values"
WRONG_INPUTS = {
    "multinomial": f"{_VALUES}: probabilities below 0, infinite, or all 0",
    "gather": f"{_VALUES}: an index is out of bounds",
    "scatter": f"{_VALUES}: an index is out of bounds",
    "scatter_add": f"{_VALUES}: an index is out of bounds",
    "nn_functional_gaussian_nll_loss": "reads values before it checks its options: DataDependentError comes first",
}
# Refused for its dtype by the real CPU, and not by a claim of it.
UNTRIED = {
    "allclose": "reads values, and says that first",
    "nn_functional_gaussian_nll_loss": "reads values, and says that first",
    "nn_functional_ctc_loss": "with lengths of 0 its kernel has nothing to do",
    "_segment_reduce_lengths": "lengths of 0 are refused before the dtype",
    "randint_like": "draws, and takes no generator of its own",
}


@pytest.fixture(scope="module")
def limit(request: pytest.FixtureRequest) -> int | None:
    return None if request.config.getoption("--all-samples") else FIRST


@pytest.mark.parametrize("index", range(SHARDS))
def test_metadata_are_those_of_real_execution(index: int, limit: int | None) -> None:
    tally = fake_samples.compare(shard(index, SHARDS), limit)
    different = [f"{op} {what}" for op, what in tally.different]
    assert not different, "\n".join(different[:40])
    assert set(tally.sparse) <= SPARSE
    assert tally.more_data_than_torch == []
    assert tally.equal > 500
    assert tally.skipped < 0.1 * tally.equal


def test_wrong_inputs_raise_what_real_execution_raises() -> None:
    same, others = fake_samples.compare_errors(operators())
    unlisted = [other for other in others if other.partition(" ")[0] not in WRONG_INPUTS]
    assert not unlisted, "\n".join(unlisted)
    assert same >= 0.95 * (same + len(others))
    assert same > 400


def test_dtypes_without_a_kernel_are_refused() -> None:
    both, others = fake_samples.compare_dtypes(operators(), (*DTYPES, torch.bool, torch.float16))
    unlisted = [other for other in others if other.partition(" ")[0] not in UNTRIED]
    assert not unlisted, "\n".join(unlisted)
    assert both >= 0.95 * (both + len(others))
    assert both > 700


def test_the_lists_name_operators() -> None:
    names = {op.formatted_name for op in operators()}
    assert {*SPARSE, *WRONG_INPUTS, *UNTRIED} <= names


def test_the_comparison_sees_a_difference() -> None:
    plain = torch.ones(4, 6)
    faker = fake_samples.Faker()
    run = fake_samples.Run(fake_samples.Arguments(plain, (), {}), plain, plain.t())
    right = fake_samples.Run(fake_samples.Arguments(faker(plain), (), {}), faker(plain), faker(plain).t())
    wrong = fake_samples.Run(fake_samples.Arguments(faker(plain), (), {}), faker(plain), faker(plain).t().clone())
    assert fake_samples.observed(run) == fake_samples.observed(right)
    assert fake_samples.observed(run) != fake_samples.observed(wrong)
    assert len(DTYPES) == 4
