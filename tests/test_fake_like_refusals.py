"""Calls that FakeLikeTensor refuses, as the claimed device would or because there is no data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import lamina
from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cuda:0") -> Any:
    return FakeLikeTensor.from_tensor(torch.empty(shape, dtype=dtype), device)


DEVICES = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + b,
        lambda a, b: a @ b.t(),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: a.add_(b),
        torch.nn.functional.linear,
    ],
)
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_devices_that_differ(call: Callable[[Any, Any], Any], other: str) -> None:
    with pytest.raises(RuntimeError, match=f"{DEVICES}{other}!"):
        call(fake(3, 3), fake(3, 3, device=other))


def test_a_number_on_the_cpu_mixes_with_any_device() -> None:
    for zero in (fake(device="cpu"), torch.tensor(2.0)):
        for result in (fake(3) + zero, zero * fake(3), fake(3).add_(zero), torch.where(fake(3) > 0, fake(3), zero)):
            assert (str(result.device), result.shape) == ("cuda:0", (3,))
    with pytest.raises(RuntimeError, match="same device"):
        fake(3) + fake(1, device="cpu")
    with pytest.raises(RuntimeError, match="same device"):
        fake(3) + torch.ones(3)


def test_copies_cross_devices_and_indices_may_be_on_the_cpu() -> None:
    target = fake(3)
    assert target.copy_(fake(3, device="cpu")) is target
    assert str(fake(5)[fake(2, dtype=torch.int64, device="cpu")].device) == "cuda:0"


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: x @ x, RuntimeError),
        (lambda x: x + x[:, :2], RuntimeError),
        (lambda x: x.view(5, 5), RuntimeError),
        (lambda x: x.view(-2, 3), RuntimeError),
        (lambda x: x.sum(7), IndexError),
        (lambda x: x[5], IndexError),
        (lambda x: x.new_zeros(-1), RuntimeError),
        (lambda x: x.expand(2, 2), RuntimeError),
        (lambda x: torch.cat([x, x[0]]), RuntimeError),
        (lambda x: x.to(torch.int64).mean(), RuntimeError),
        (lambda x: torch.stack([x, x[0]]), RuntimeError),
        (lambda x: x.resize_(-1), RuntimeError),
        (lambda x: x.amax(1) if x.shape[1] == 0 else x[:, :0].amax(1), IndexError),
        (lambda x: torch.nn.functional.embedding(x.to(torch.int64), x[0]), RuntimeError),
        (lambda x: x.squeeze(0, 1, 5), IndexError),
        (lambda x: x.t().view(-1), RuntimeError),
        (lambda x: x.unsqueeze(9), IndexError),
        (lambda x: x.flatten(1, 0), RuntimeError),
        (lambda x: x.reshape(7), RuntimeError),
    ],
)
def test_the_error_is_of_the_type_that_a_real_tensor_gives(call: Callable[[Any], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as real:
        call(torch.ones(3, 4))
    with pytest.raises(kind) as faked:
        call(fake(3, 4, device="cpu"))
    assert type(real.value) is type(faked.value)
    with pytest.raises(kind):
        call(fake(3, 4))


def test_devices_that_do_not_exist() -> None:
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        fake(3, device="gpu")
    with pytest.raises(TypeError, match=r"mps tensors can't be of torch\.float64"):
        fake(3, dtype=torch.float64, device="mps")
    with pytest.raises(RuntimeError, match=r"mps tensors can't be of torch\.float64"):
        fake(3, device="mps").double()


def test_real_data_is_not_written_into_a_fake_nor_a_fake_into_real_data() -> None:
    for device in ("cpu", "cuda:0"):
        with pytest.raises(RuntimeError, match=r"real data of shape \(3,\).*from_tensor"):
            fake(3, device=device).copy_(torch.ones(3))
        real = torch.ones(3)
        with pytest.raises(RuntimeError, match=r"into a real tensor of shape \(3,\) on cpu.*FakeLikeMode"):
            real.copy_(fake(3, device=device))
        with pytest.raises(RuntimeError, match="into a real tensor"):
            torch.add(fake(3), fake(3), out=real)
        with pytest.raises(RuntimeError, match="into a real tensor"):
            real.add_(fake(3))
        with pytest.raises(RuntimeError, match="into a real tensor"):
            torch._foreach_add_([real], [fake(3)])
        assert torch.equal(real, torch.ones(3))
    assert fake(3).fill_(torch.tensor(1.0)).shape == (3,)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("lamina_tests", "FRAGMENT") as found:
        yield found


def test_a_custom_operator_without_a_fake_kernel(library: torch.library.Library) -> None:
    library.define("halves(Tensor x, int n) -> (Tensor, Tensor)")
    library.impl("halves", lambda x, n: (x[:n].clone(), x[n:].clone()), "CPU")
    with pytest.raises(lamina.MissingFakeKernelError) as caught:
        torch.ops.lamina_tests.halves(fake(4), 2)
    assert isinstance(caught.value, NotImplementedError)
    assert '@torch.library.register_fake("lamina_tests::halves")' in str(caught.value)
    assert "def _(x, n):\n        return torch.empty_like(x), torch.empty_like(x)" in str(caught.value)
    torch.library.register_fake("lamina_tests::halves", lambda x, n: (x.new_empty(n), x.new_empty(7)), lib=library)
    first, second = torch.ops.lamina_tests.halves(fake(4, device="cuda:2"), 2)
    assert [(type(t), tuple(t.shape), str(t.device)) for t in (first, second)] == [
        (FakeLikeTensor, (2,), "cuda:2"),
        (FakeLikeTensor, (7,), "cuda:2"),
    ]


def test_kernels_on_zeros_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamina.subclasses.fake_like import zeros

    op = torch.ops.aten._histogramdd_from_bin_cts.default
    values = FakeLikeTensor.from_tensor(torch.empty(10, 2), "cuda")
    assert op(values, [3, 4]).shape == (3, 4)
    monkeypatch.setattr(zeros, "MOST", 79)
    with pytest.raises(lamina.MissingFakeKernelError, match="to run it on zeros would take"):
        op(FakeLikeTensor.from_tensor(torch.empty(20, 2), "cuda"), [3, 4])


def test_from_several_threads() -> None:
    found: list[Any] = []

    def work(device: str) -> None:
        try:
            with FakeLikeMode(device):
                weight = torch.ones(4, 4, requires_grad=True)
                (weight @ weight).sum().backward()
                found.append(weight.grad is not None and str(weight.grad.device) == device)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            found.append(error)

    threads = [threading.Thread(target=work, args=(f"cuda:{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_leaving_the_mode_with_fakes_alive() -> None:
    with FakeLikeMode("cuda"):
        weight = torch.ones(4, requires_grad=True)
        loss = (weight * 2).sum()
    loss.backward()
    assert str(weight.grad.device) == "cuda:0"
    assert str((weight.detach() + 1).device) == "cuda:0"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_corrections_hold_for_devices_that_are_not_there(device: str) -> None:
    def at(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
        return fake(*shape, dtype=dtype, device=device)

    empty = at(0, 1) * at(1)
    last = at(1, 2, 1, 3).contiguous(memory_format=torch.channels_last)
    indices = at(1, 2, 1, 3, dtype=torch.int64).contiguous(memory_format=torch.channels_last)
    unpooled = torch.ops.aten.max_unpool2d(last, indices, (3, 6))
    viewed = at(2, 2, 4, 1).as_strided((1, 2, 4, 1), (4, 4, 1, 4)).view(1, 2, 4)
    grown = at(1).addbmm_(at(2, 5, 3), at(2, 3, 10))
    solved = at(4, 3, dtype=torch.complex64)
    factors, pivots = at(3, 3, dtype=torch.complex64), at(3, dtype=torch.int32)
    torch.linalg.lu_solve(factors, pivots, at(4, 3, dtype=torch.complex64), left=False, out=solved)
    assert [each.stride() for each in (empty, unpooled, viewed)] == [(1, 0), (36, 1, 12, 2), (8, 4, 1)]
    assert grown.shape == (5, 10)
    assert solved.is_conj()
    assert {str(each.device) for each in (empty, unpooled, viewed, grown, solved)} == {device}
