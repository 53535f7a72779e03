"""FakeLikeMode: what factories make, what comes in, moves, scopes, threads, and other types and modes around it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lamina
from lamina import FakeLikeTensor, LoggingTensor, RealTensorError, ScaledInt8Tensor
from lamina.modes import DispatchLog, FakeLikeMode, OpCounter

CUDA = torch.device("cuda:0")


FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "zeros": lambda **kw: torch.zeros(2, 3, **kw),
    "empty": lambda **kw: torch.empty(2, 3, **kw),
    "full": lambda **kw: torch.full((2, 3), 1.5, **kw),
    "arange": lambda **kw: torch.arange(5, **kw),
    "linspace": lambda **kw: torch.linspace(0, 1, 5, **kw),
    "eye": lambda **kw: torch.eye(3, **kw),
    "randn": lambda **kw: torch.randn(2, 3, **kw),
    "randint": lambda **kw: torch.randint(5, (2, 3), **kw),
    "randperm": lambda **kw: torch.randperm(5, **kw),
    "tril_indices": lambda **kw: torch.tril_indices(3, 3, **kw),
    "hann_window": lambda **kw: torch.hann_window(8, **kw),
    "fftfreq": lambda **kw: torch.fft.fftfreq(8, **kw),
    "scalar_tensor": lambda **kw: torch.scalar_tensor(2.0, **kw),
    "tensor of a list": lambda **kw: torch.tensor([1, 2], **kw),
    "as_tensor of a list": lambda **kw: torch.as_tensor([1.0, 2.0], **kw),
    "asarray": lambda **kw: torch.asarray([1.0, 2.0], **kw),
    "empty_strided": lambda **kw: torch.empty_strided((2, 3), (1, 2), **kw),
    "complex": lambda **kw: torch.zeros(2, dtype=torch.complex64, **kw),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_makes_a_fake_with_the_metadata_of_the_real_one(name: str) -> None:
    real = FACTORIES[name]()
    with FakeLikeMode():
        fake = FACTORIES[name]()
    assert type(fake) is FakeLikeTensor
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (real.shape, real.stride(), real.dtype, real.device)


@pytest.mark.parametrize("name", FACTORIES)
def test_the_modes_device_is_the_default_and_another_may_be_named(name: str) -> None:
    with FakeLikeMode("cuda"):
        assert FACTORIES[name]().device == CUDA
        for device in ("cpu", "cuda:3", "xpu", "meta"):
            made = FACTORIES[name](device=device)
            assert type(made) is FakeLikeTensor
            assert made.device == torch.device("xpu:0" if device == "xpu" else device)


def test_with_out_the_device_is_that_of_out() -> None:
    with FakeLikeMode("cpu"):
        out = torch.empty(3, device="cuda")
        assert torch.zeros(3, out=out) is out
        assert torch.arange(3, out=out, device="cuda").device == CUDA
        with pytest.raises(RuntimeError, match="does not match device of out"):
            torch.zeros(3, out=out, device="cpu")
        drawn = torch.normal(2.0, 1.0, (3,), out=out, device="cuda")
        assert drawn is out
        with pytest.raises(RuntimeError, match="does not match device of out parameter"):
            torch.normal(2.0, 1.0, (3,), out=out, device="cpu")


def test_what_cpp_makes_like_a_fake_claims_what_the_fake_claims() -> None:
    with FakeLikeMode():
        labels = torch.zeros(3, dtype=torch.int64, device="cuda:2")
        assert F.one_hot(labels, 4).device == labels.device
        x = torch.ones(3, 4, device="cuda:1")
        assert x[[0, 1]].device == x.device
        assert torch.block_diag(x, x).device == x.device
        for like in (torch.zeros_like(x), x.new_zeros(2), x.new_tensor([1.0]), torch.rand_like(x), x.new_full((2,), 1)):
            assert (type(like), like.device) == (FakeLikeTensor, x.device)
        assert torch.zeros_like(x, device="cpu").is_cpu


def test_a_number_stays_real_and_mixes() -> None:
    with FakeLikeMode("cuda"):
        number = torch.tensor(2.5)
        assert type(number) is torch.Tensor
        assert number.item() == 2.5
        assert (number + 1).item() == 3.5
        assert (torch.ones(3) * number).device == CUDA
        assert type(number.expand(3)) is FakeLikeTensor
        assert torch.tensor(2.5, device="cuda:1").device == torch.device("cuda:1")
        assert number.cuda().device == CUDA
        with pytest.raises(RealTensorError, match="real tensor"):
            nn.Parameter(number) * torch.ones(3)


@pytest.mark.parametrize("how", [lambda x, y: x.to(y), lambda x, y: x.to(tensor=y), lambda x, y: x.to(y, copy=True)])
def test_a_number_moves_to_where_a_tensor_is(how: Any) -> None:
    with FakeLikeMode("cuda"):
        moved = how(torch.tensor(2.5), torch.ones(3, dtype=torch.float64))
    assert (type(moved), moved.device, moved.dtype, moved.shape) == (FakeLikeTensor, CUDA, torch.float64, ())


def test_devices_that_do_not_match_are_refused_as_on_a_gpu() -> None:
    with FakeLikeMode(), pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        torch.ones(3, device="cuda") + torch.ones(3)


@pytest.mark.parametrize("device", ["nowhere", "cuda:x", "gpu"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"[Dd]evice|Expected one of"):
        FakeLikeMode(device)
    with FakeLikeMode(), pytest.raises(RuntimeError, match=r"[Dd]evice|Expected one of"):
        torch.ones(2, device=device)


def test_bad_sizes_and_dtypes_are_refused() -> None:
    with FakeLikeMode("mps"):
        with pytest.raises(TypeError, match="float64"):
            torch.ones(2, dtype=torch.float64)
        with pytest.raises(RuntimeError, match="negative"):
            torch.ones(-2)


def test_real_tensors_are_refused_with_what_to_do() -> None:
    real = torch.ones(3)
    with FakeLikeMode():
        fake = torch.ones(3)
        for run in (lambda: fake + real, lambda: real + 1, lambda: fake.copy_(real), lambda: real.copy_(fake)):
            with pytest.raises(RealTensorError, match="from_tensor") as caught:
                run()
            assert caught.value.shape == (3,)
        assert type(torch.from_numpy(np.ones(3))) is FakeLikeTensor
    assert real.tolist() == [1.0, 1.0, 1.0]


def test_real_tensors_are_converted_on_request_each_to_one_fake() -> None:
    real, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    with FakeLikeMode(convert=True):
        assert type(real + torch.ones(3)) is FakeLikeTensor
        view, other = real.view(3), real.view(3)
        assert view.untyped_storage()._cdata == other.untyped_storage()._cdata
        with pytest.raises(RealTensorError):
            real.add_(1)
        with pytest.raises(RealTensorError):
            leaf * 2
    assert real.tolist() == [1.0, 1.0, 1.0]


MOVES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str, torch.dtype]] = {
    "to a device": (lambda x: x.to("cuda:2"), "cuda:2", torch.float32),
    "to an index": (lambda x: x.to(3), "cuda:3", torch.float32),
    "to both": (lambda x: x.to("cuda", torch.float16), "cuda:0", torch.float16),
    "to by name": (lambda x: x.to(device="cuda", dtype=torch.float16), "cuda:0", torch.float16),
    "to another": (lambda x: x.to(torch.ones(1, device="cuda:5", dtype=torch.float64)), "cuda:5", torch.float64),
    "cuda": (lambda x: x.cuda(), "cuda:0", torch.float32),
    "cuda of an index": (lambda x: x.cuda(1), "cuda:1", torch.float32),
    "xpu": (lambda x: x.xpu(), "xpu:0", torch.float32),
    "there and back": (lambda x: x.cuda().cpu(), "cpu", torch.float32),
    "half": (lambda x: x.cuda().half(), "cuda:0", torch.float16),
    "type": (lambda x: x.type("torch.cuda.HalfTensor"), "cuda:0", torch.float16),
    "type_as": (lambda x: x.type_as(torch.ones(1, device="cuda", dtype=torch.float64)), "cuda:0", torch.float64),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("inside", [True, False])
def test_a_move_claims_and_its_gradient_comes_back(name: str, inside: bool) -> None:
    move, device, dtype = MOVES[name]
    with FakeLikeMode():
        x = torch.ones(3, 4, requires_grad=True)
        if inside:
            moved = move(x)
            moved.sum().backward()
    if not inside:
        if name in ("to another", "type_as"):
            return
        moved = move(x)
        moved.sum().backward()
    assert (moved.device, moved.dtype) == (torch.device(device), dtype)
    assert (x.grad.device, x.grad.dtype) == (x.device, x.dtype)


def test_a_move_to_where_a_tensor_is_gives_itself() -> None:
    with FakeLikeMode("cuda"):
        x = torch.ones(3)
        for same in (x.to("cuda"), x.cuda(), x.to(0), x.to(x), x.to("cuda", torch.float32), torch.as_tensor(x)):
            assert same is x
        assert x.to("cuda", copy=True) is not x
        assert x.cpu() is not x
        with pytest.raises(TypeError, match="nonsense=bool"):
            x.to("cuda", nonsense=True)
        with pytest.raises(RuntimeError, match="must be cuda"):
            x.cuda("cpu")


def test_properties_answer_by_the_claim() -> None:
    with FakeLikeMode():
        x, y, z = torch.ones(2, device="cuda:1"), torch.ones(2), torch.ones(2, device="mps")
        assert (x.is_cuda, x.is_cpu, x.is_meta, x.is_mps, x.get_device()) == (True, False, False, False, 1)
        assert (y.is_cuda, y.is_cpu, y.is_meta, y.get_device()) == (False, True, False, -1)
        assert (z.is_mps, z.is_cuda) == (True, False)
        assert (x.type(), y.half().type()) == ("torch.cuda.FloatTensor", "torch.HalfTensor")
        assert y.pin_memory().is_pinned()
        assert torch.empty(2, pin_memory=True).is_pinned()
        assert not y.is_pinned()
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            x.pin_memory()


def test_modules_are_built_and_moved() -> None:
    with FakeLikeMode():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        weight = model[0].weight
        assert isinstance(weight, nn.Parameter)
        assert isinstance(weight, FakeLikeTensor)
        model.cuda().bfloat16()
        assert {(t.device, t.dtype) for t in model.parameters()} == {(CUDA, torch.bfloat16)}
        assert model[1].running_mean.device == CUDA
        model.to("cuda:1", torch.float32)
        out = model(torch.ones(2, 3, device="cuda:1"))
        out.sum().backward()
        assert {p.grad.device for p in model.parameters()} == {torch.device("cuda:1")}
        model.load_state_dict(model.state_dict())


def test_trunc_normal_needs_no_values() -> None:
    with FakeLikeMode("cuda"):
        weight = torch.empty(3, 4)
        assert nn.init.trunc_normal_(weight) is weight
        assert weight._version == 1


def test_fakes_outlive_the_mode_and_the_rest_is_real_again() -> None:
    with FakeLikeMode("cuda"):
        layer, x = nn.Linear(3, 4), torch.ones(2, 3)
    out = layer(x)
    out.sum().backward()
    assert (out.device, layer.weight.grad.device) == (CUDA, CUDA)
    assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="real"):
        torch.ones(2, 3).copy_(x)


def test_nested_modes_have_each_its_device_and_one_is_entered_once() -> None:
    outer = FakeLikeMode("cuda")
    with outer:
        with FakeLikeMode("cuda:1"):
            inner = torch.ones(2)
        assert (inner.device, torch.ones(2).device) == (torch.device("cuda:1"), CUDA)
        with pytest.raises(RuntimeError, match="is on already"), outer:
            pass
        assert torch.ones(2).device == CUDA
    with outer:
        assert torch.ones(2).device == CUDA
    assert type(torch.ones(2)) is torch.Tensor


def test_an_error_inside_leaves_the_mode() -> None:
    def fail() -> None:
        with FakeLikeMode("cuda"):
            assert torch._C._only_lift_cpu_tensors()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert type(torch.ones(2)) is torch.Tensor
    assert not torch._C._only_lift_cpu_tensors()


def test_a_mode_is_its_threads_own() -> None:
    found: dict[str, Any] = {}
    mode = FakeLikeMode("cuda")

    def work() -> None:
        found["plain"] = type(torch.ones(2))
        with FakeLikeMode("cuda:1"):
            layer = nn.Linear(3, 3)
            layer(torch.ones(2, 3)).sum().backward()
            found["grad"] = layer.weight.grad.device
        try:
            with mode:
                pass
        except RuntimeError as error:
            found["again"] = str(error)

    with mode:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert torch.ones(2).device == CUDA
    assert found["plain"] is torch.Tensor
    assert found["grad"] == torch.device("cuda:1")
    assert "is on already" in found["again"]


def test_random_operators_leave_the_real_generator_alone() -> None:
    state = torch.get_rng_state()
    with FakeLikeMode():
        torch.randn(3)
        nn.init.xavier_normal_(torch.empty(3, 3))
        F.dropout(torch.ones(3))
        torch.randperm(5)
    assert torch.equal(torch.get_rng_state(), state)


def test_logs_and_counters_above_the_mode_see_its_operators() -> None:
    with DispatchLog() as log, FakeLikeMode("cuda"), OpCounter() as counter:
        layer = nn.Linear(3, 4)
        layer(torch.ones(2, 3)).sum().backward()
    shown = [str(record) for record in log.log.records]
    assert any(text.startswith("aten::addmm(") for text in shown)
    assert counter.counts["aten::addmm"] == 1


def test_a_logging_tensor_built_inside_holds_a_fake() -> None:
    log = lamina.Log()
    with FakeLikeMode("cuda"), log:
        x = LoggingTensor(torch.ones(2, 3)).requires_grad_()
        out = x.exp().sum()
        out.backward()
    assert (type(x.elem), x.device, x.is_cuda, x.get_device()) == (FakeLikeTensor, CUDA, True, 0)
    assert (type(out), type(out.elem), out.device) == (LoggingTensor, FakeLikeTensor, CUDA)
    assert x.grad.device == CUDA
    assert "aten::exp" in log.counts


def test_int8_parameters_built_inside_hold_fakes_and_train() -> None:
    with FakeLikeMode("cuda"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        lamina.wrap_parameters(
            model, ScaledInt8Tensor.quantize, where=lambda name, *_: name == "weight" or "weight" in name
        )
        weight = model[0].weight
        optimizer = torch.optim.AdamW(model.parameters())
        out = model(torch.ones(2, 8))
        out.sum().backward()
        optimizer.step()
    assert isinstance(weight, ScaledInt8Tensor)
    assert (type(weight.qdata), weight.qdata.dtype, weight.device) == (FakeLikeTensor, torch.int8, CUDA)
    assert (type(weight.grad), weight.grad.device, out.device) == (FakeLikeTensor, CUDA, CUDA)


def test_a_users_type_over_fakes_is_where_they_claim_to_be() -> None:
    class Celsius(lamina.WrapperTensor):
        elem: torch.Tensor
        fallback = lamina.Fallback.UNWRAP

    plain = Celsius(torch.ones(3))
    with FakeLikeMode("cuda:2"):
        warm = Celsius(torch.ones(3))
        assert (warm.device, (warm + 1).device, warm.is_cuda) == (torch.device("cuda:2"), torch.device("cuda:2"), True)
    assert (plain.device.type, plain.is_cuda, (plain + 1).device.type) == ("cpu", False, "cpu")


def test_fake_like_converts_a_model_in_place() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model.tied = model[0].weight
    weight, version = model[0].weight, model[1].num_batches_tracked
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(2, 3)).sum().backward()
    hooked: list[torch.device] = []
    weight.register_hook(lambda gradient: hooked.append(gradient.device))
    assert lamina.fake_like(model, "cuda") is model
    assert model[0].weight is weight
    assert model.tied is weight
    assert (type(weight), type(weight.grad), weight.grad.device) == (FakeLikeTensor, FakeLikeTensor, CUDA)
    assert (type(model[1].num_batches_tracked), model[1].running_mean.device) == (FakeLikeTensor, CUDA)
    assert type(version) is torch.Tensor
    with FakeLikeMode("cuda"):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert hooked == [CUDA]
    assert type(optimizer.state[weight]["momentum_buffer"]) is FakeLikeTensor


def test_fake_like_keeps_wrappers_and_the_devices_that_are_there() -> None:
    model = nn.Linear(4, 4)
    lamina.wrap_parameters(model, ScaledInt8Tensor.quantize, where=lambda name, *_: name == "weight")
    lamina.fake_like(model)
    assert isinstance(model.weight, ScaledInt8Tensor)
    assert (type(model.weight.qdata), model.weight.device, model.bias.device) == (
        FakeLikeTensor,
        torch.device("cpu"),
        torch.device("cpu"),
    )


def test_fake_like_refuses_what_it_cannot_convert_and_changes_nothing() -> None:
    with pytest.raises(TypeError, match="from_tensor"):
        lamina.fake_like(torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no shape yet"):
        lamina.fake_like(nn.LazyLinear(3))
    model = nn.Linear(3, 3)
    out = model(torch.ones(1, 3))
    with pytest.raises(lamina.ParameterInUseError):
        lamina.fake_like(model)
    assert {type(p) for p in model.parameters()} == {nn.Parameter}
    del out
    gc.collect()
    lamina.fake_like(model)
