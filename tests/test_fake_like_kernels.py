"""Dtypes for which the CPU has no kernel: refused for a claim of the CPU, in the words of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode
from lamina.subclasses.fake_like import kernels

LONG, HALF, BF16, BOOL, COMPLEX = torch.int64, torch.float16, torch.bfloat16, torch.bool, torch.complex64
SMALL, LARGE = 3, 400  # of a matrix: tried as it is, and by a smaller one


def real(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
    return torch.ones(shape, dtype=dtype)


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
    return FakeLikeTensor.from_tensor(torch.empty(shape, dtype=dtype, device="meta"), device)


Make = Callable[..., Any]
REFUSED: dict[str, Callable[[Make, int], Any]] = {
    "exp_ of integers": lambda make, n: make(n, n, dtype=LONG).exp_(),
    "mm of bools": lambda make, n: make(n, n, dtype=BOOL) @ make(n, n, dtype=BOOL),
    "bmm of bools": lambda make, n: torch.bmm(make(2, n, n, dtype=BOOL), make(2, n, n, dtype=BOOL)),
    "cholesky of bfloat16": lambda make, n: torch.linalg.cholesky(make(n, n, dtype=BF16)),
    "qr of float16": lambda make, n: torch.linalg.qr(make(n, n, dtype=HALF)),
    "mse_loss of integers": lambda make, n: F.mse_loss(make(n, n, dtype=LONG), make(n, n, dtype=LONG)),
    "clamp of complex numbers": lambda make, n: make(n, n, dtype=COMPLEX).clamp(0, 1),
    "softmax of integers": lambda make, n: make(n, n, dtype=LONG).softmax(-1),
    "sort of complex numbers": lambda make, n: make(n, n, dtype=COMPLEX).sort(),
    "std of integers": lambda make, n: make(n, n, dtype=LONG).std(),
    "minus of bools": lambda make, n: make(n, n, dtype=BOOL) - make(n, n, dtype=BOOL),
    "elu of integers": lambda make, n: F.elu(make(n, n, dtype=LONG)),
    "normal_ of integers": lambda make, n: make(n, n, dtype=LONG).normal_(),
    "foreach": lambda make, n: torch._foreach_exp_([make(n, n), make(n, n, dtype=LONG)]),
    "out": lambda make, n: torch.erfinv(make(n, n, dtype=COMPLEX), out=make(n, n, dtype=COMPLEX)),
    "softshrink of integers": lambda make, n: F.softshrink(make(n, n, dtype=LONG)),
    "max_pool2d of bools": lambda make, n: F.max_pool2d(make(1, 1, n, n, dtype=BOOL), 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_cpu_has_no_kernel(name: str, size: int) -> None:
    call = REFUSED[name]
    with pytest.raises((RuntimeError, TypeError), match=r"\w") as expected:
        call(real, size)
    with FakeLikeMode("cpu"), pytest.raises(type(expected.value)) as got:
        call(fake, size)
    assert type(got.value) is type(expected.value)
    if size == SMALL:
        assert str(got.value).partition("\n")[0] == str(expected.value).partition("\n")[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda make, n: make(n, n, dtype=HALF) @ make(n, n, dtype=HALF),
        lambda make, n: F.conv2d(make(1, 2, n, n, dtype=BF16), make(3, 2, 3, 3, dtype=BF16)),
        lambda make, n: F.conv2d(make(1, 32, n, n), make(32, 1, 3, 3), groups=32),
        lambda make, n: F.layer_norm(make(n, n, dtype=HALF), (n,)),
        lambda make, n: F.embedding(make(n, n, dtype=LONG), make(n, n)),
        lambda make, n: make(n, n)[make(n, dtype=LONG)],
        lambda make, n: make(n, n, dtype=BOOL).sum(),
        lambda make, n: make(0, n, dtype=BOOL) @ make(n, 2, dtype=BOOL),
        lambda make, n: make(n, n).t().mul_(make(n, 1, dtype=HALF)),
        lambda make, n: torch.linalg.inv(make(n, n)),
        lambda make, n: make(n, n).bernoulli_(),
    ],
)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_the_cpu_takes_is_taken(call: Callable[[Make, int], Any], size: int) -> None:
    def value(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
        return (
            torch.eye(shape[0], dtype=dtype) if len(shape) == 2 and shape[0] == shape[1] else real(*shape, dtype=dtype)
        )

    try:
        expected = call(value, size)
    except NotImplementedError as refused:
        with FakeLikeMode("cpu"), pytest.raises(NotImplementedError, match=str(refused)):
            call(fake, size)
        return
    with FakeLikeMode("cpu"):
        got = call(fake, size)
    assert (got.shape, got.dtype, got.stride()) == (expected.shape, expected.dtype, expected.stride())


@pytest.mark.parametrize("device", ["cuda:0", "xpu:0", "meta"])
def test_kernels_of_devices_that_are_not_there_are_not_asked(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("a trial")

    monkeypatch.setattr(kernels, "_Samples", asked)
    x = fake(3, 3, dtype=BOOL, device=device)
    assert (x @ x).dtype is BOOL
    with pytest.raises(AssertionError, match="a trial"):
        fake(3, 3) @ fake(3, 3)


def test_a_refused_call_changes_nothing_and_is_refused_again() -> None:
    x = fake(400, 400, dtype=LONG)
    before = x.metadata
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't be cast"):
            x.exp_()
    assert (x.metadata is before, x._version) == (True, 0)


def test_a_smaller_call_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_taken", set())
    for rows in (300, 301, 302):
        fake(rows, 300).mul(2.0)
        fake(rows, 300).mul(3.0)
    assert len(kernels._taken) == 1
    monkeypatch.setattr(kernels, "_MOST", 1)
    fake(300, 300).add(2.0)
    assert len(kernels._taken) == 1


def test_trials_are_of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def filled(extent: int, **options: Any) -> torch.Tensor:
        sizes.append(extent)
        return torch.empty(extent, **options)

    monkeypatch.setattr(torch, "zeros", filled)
    monkeypatch.setattr(torch, "ones", filled)
    monkeypatch.setattr(kernels, "_taken", set())
    huge = fake(1 << 20, 1 << 10, dtype=BF16)
    for call in (lambda: huge @ huge.t(), huge.exp, lambda: huge.sum(0), lambda: huge.softmax(-1)):
        call()
    assert len(sizes) == 5
    assert max(sizes) <= 64


def test_trials_draw_nothing() -> None:
    state = torch.get_rng_state()
    generator = torch.Generator()
    before = generator.get_state()
    with pytest.raises(NotImplementedError, match="poisson"):
        torch.poisson(fake(3, dtype=LONG))
    torch.poisson(fake(3), generator)
    fake(3).uniform_(generator=generator)
    F.dropout(fake(3))
    fake(5, 5).normal_()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(generator.get_state(), before)
