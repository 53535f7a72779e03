"""Losses, and what C++ writes in place in the backward: a plan against what the CPU allocator gave out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_plan_scratch import allocated
from torch import Tensor

import lamina

ROWS, COLUMNS = 100, 50
EACH = 4 * ROWS * COLUMNS


def classes() -> Tensor:
    return torch.randint(COLUMNS, (ROWS,))


LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth l1": F.smooth_l1_loss,
    "smooth l1, as l1": partial(F.smooth_l1_loss, beta=0.0),
    "huber": F.huber_loss,
    "cross entropy of bits": F.binary_cross_entropy,
    "cross entropy of bits, weighted": lambda x, y, reduction: F.binary_cross_entropy(x, y, y, reduction=reduction),
    "logits": F.binary_cross_entropy_with_logits,
    "logits, weighted": lambda x, y, reduction: F.binary_cross_entropy_with_logits(
        x, y, y, reduction=reduction, pos_weight=y
    ),
    "divergence": F.kl_div,
    "soft margin": F.soft_margin_loss,
    "poisson": F.poisson_nll_loss,
    "likelihood": lambda x, _, reduction: F.nll_loss(x, classes(), reduction=reduction),
    "cross entropy": lambda x, _, reduction: F.cross_entropy(x, classes(), reduction=reduction),
    "cross entropy of probabilities": F.cross_entropy,
    "margin": lambda x, _, reduction: F.multi_margin_loss(x, classes(), reduction=reduction),
    "soft margin of labels": F.multilabel_soft_margin_loss,
    "ranking": lambda x, y, reduction: F.margin_ranking_loss(x, y, y, reduction=reduction),
    "hinge": F.hinge_embedding_loss,
    "cosine": lambda x, y, reduction: F.cosine_embedding_loss(x, y, torch.ones(ROWS), reduction=reduction),
    "triplet": lambda x, y, reduction: F.triplet_margin_loss(x, y, y, reduction=reduction),
}


def step(loss: Callable[..., Tensor], reduction: str, *, backward: bool) -> Tensor:
    x, target = torch.rand(ROWS, COLUMNS, requires_grad=True), torch.rand(ROWS, COLUMNS)
    result = loss(x, target, reduction=reduction)
    if backward:
        result.sum().backward()
    return result


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_takes_what_the_allocator_gave_out(loss: str, reduction: str, backward: bool) -> None:
    """To a few vectors: what is computed of rows alone."""
    run = partial(step, LOSSES[loss], reduction, backward=backward)
    assert lamina.plan_step(run).scratch.peak_bytes == pytest.approx(allocated(run), abs=0.03 * EACH)


@pytest.mark.parametrize("loss", ["mse", "smooth l1", "cross entropy of bits", "soft margin"])
def test_the_storage_of_a_reduced_loss_has_each_element(loss: str) -> None:
    """Until the loss is gone; that is no scratch memory."""
    real = step(LOSSES[loss], "sum", backward=False)
    assert real.untyped_storage().nbytes() == EACH
    assert lamina.plan_step(partial(step, LOSSES[loss], "sum", backward=False)).at_end["temporaries"] >= EACH
    assert lamina.plan_step(partial(step, F.huber_loss, "sum", backward=False)).at_end["temporaries"] < EACH


def test_a_loss_on_a_gpu() -> None:
    def train() -> None:
        step(F.binary_cross_entropy_with_logits, "mean", backward=False)

    plan = lamina.plan_step(train, device="cuda")
    assert plan.scratch_bytes == 2 * EACH
    assert plan.scratch.source == "temporaries of torch's Loss.cpp"


@pytest.mark.parametrize("run", [F.unfold, partial(F.fold, output_size=8)], ids=["unfold", "fold"])
def test_folding_keeps_as_much_as_it_was_given(run: Callable[..., Tensor]) -> None:
    def fold() -> Tensor:
        given = torch.rand(2, 3, 8, 8) if run is F.unfold else torch.rand(2, 12, 49)
        return run(given, kernel_size=2, stride=3 if run is F.unfold else 1)

    assert lamina.plan_step(fold).peak_bytes == allocated(fold) == 2 * given_bytes(run)


def given_bytes(run: Callable[..., Tensor]) -> int:
    return 4 * 2 * 3 * 8 * 8 if run is F.unfold else 4 * 2 * 12 * 49


class Sums(torch.autograd.Function):
    """Makes new tensors in its backward, as it says."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2 + grads[0]


class Fills(Sums):
    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        return torch.zeros(ROWS, COLUMNS).scatter(1, torch.zeros(ROWS, 1, dtype=torch.int64), grads[0])


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "a row of each": lambda x: x.gather(1, torch.zeros(ROWS, 20, dtype=torch.int64)),
    "selected": lambda x: x.index_select(0, torch.zeros(20, dtype=torch.int64)),
    "indexed": lambda x: x[torch.zeros(20, dtype=torch.int64)],
    "taken": lambda x: x.take(torch.zeros(20, dtype=torch.int64)),
    "largest": lambda x: x.max(dim=1)[0],
    "the five largest": lambda x: x.topk(5)[0],
    "sorted": lambda x: x.sort(stable=True)[0],
    "running maximum": lambda x: x.cummax(0)[0],
    "squared": lambda x: x * x,
    "squared and more": lambda x: (x * x).mean(1, keepdim=True) * x,
    "with itself": lambda x: x.view(10, 10, 50).bmm(x.view(10, 50, 10)),
    "itself, twice": lambda x: x + x,
    "a sum in a formula": Sums.apply,
    "zeros filled in a formula": Fills.apply,
    "a sum of products": lambda x: x * x.detach() + x.sin() * x.cos(),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_backward_makes_once_counts_once(name: str) -> None:
    """C++ makes a second one where tensors are of a class, or a mode is on."""

    def run() -> None:
        x = torch.rand(ROWS, COLUMNS, requires_grad=True)
        result = WRITES[name](x)
        result.backward(torch.empty_like(result))

    assert lamina.plan_step(run).peak_bytes == pytest.approx(allocated(run), abs=0.03 * EACH)
