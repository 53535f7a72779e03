"""Recurrent layers that claim the CPU: call for call what the real CPU does, by oneDNN and without it, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import lamina
from lamina import FakeLikeTensor
from lamina.modes import DispatchLog, FakeLikeMode
from lamina.subclasses.core.fields import tensors_in
from lamina.subclasses.fake_like import UndecidedError, recurrent


def known(tensor: torch.Tensor | None) -> Any:
    return tensor if tensor is None else (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


@contextmanager
def onednn(on: bool) -> Iterator[None]:
    # Assignments are refused once torch's own test modules are loaded; the default for TF32 warns without Intel's GPU.
    with torch.backends.mkldnn.flags(enabled=on, allow_tf32=torch.backends.mkldnn.allow_tf32):
        yield


def run(module: nn.Module, *inputs: Any) -> dict[str, Any]:
    """What is known of the results, of what is saved, of the gradients; and the operators that ran."""
    saved: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(known(tensor))
        return tensor

    with DispatchLog() as log:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = [*tensors_in(module(*inputs))]
        if out[0].requires_grad:
            sum(each.sum() for each in out).backward()
    return {
        "results": [(known(each), type(each.grad_fn).__name__, each._is_view()) for each in out],
        "saved": saved,
        "gradients": [known(each.grad) for each in (*module.parameters(), *tensors_in(inputs))],
        "ops": [record.op.replace("new_zeros", "zeros") for record in log.records if "detach" not in record.op],
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "both ways": {"bidirectional": True},
    "deep": {"num_layers": 3, "dropout": 0.5, "bidirectional": True},
    "batch first": {"batch_first": True},
    "relu": {"nonlinearity": "relu"},
    "projected": {"proj_size": 2, "num_layers": 2, "bidirectional": True},
}
ONLY = {"relu": "RNN", "projected": "LSTM"}
Ran = tuple[torch.dtype, bool, bool]  # dtype, in training, with gradients
USUAL: list[Ran] = [(torch.float32, True, True), (torch.float32, False, False)]
ALL: list[Ran] = [
    *USUAL,
    (torch.float32, False, True),
    (torch.float64, False, True),
    (torch.bfloat16, True, True),
    (torch.float16, True, False),
]
CASES = [
    (kind, name, on, ran)
    for kind, switch in (("LSTM", (True, False)), ("GRU", (True,)), ("RNN", (True,)))
    for name in OPTIONS
    for on in switch
    for ran in (ALL if name == "deep" else USUAL)
    if ONLY.get(name, kind) == kind
]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("kind", "name", "on", "ran"), CASES)
def test_a_layer_is_call_for_call_that_of_the_cpu(kind: str, name: str, on: bool, ran: Ran) -> None:
    dtype, training, gradients = ran

    def layer() -> nn.Module:
        return getattr(nn, kind)(3, 4, **OPTIONS[name], dtype=dtype).train(training)

    real = torch.ones(5, 2, 3, dtype=dtype, requires_grad=gradients)
    with onednn(on), torch.set_grad_enabled(gradients):
        expected = run(layer(), real)
        with FakeLikeMode("cpu"):
            module = layer()
            got = run(module, FakeLikeTensor.from_tensor(real))
    assert got == expected
    assert bool(expected["saved"]) == gradients
    assert all(type(weight) is FakeLikeTensor for weight in module.parameters())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_state_may_be_given_and_a_batch_be_missing(kind: str) -> None:
    def results(batch: tuple[int, ...]) -> list[Any]:
        layer = getattr(nn, kind)(3, 4, num_layers=2)
        state = torch.ones(2, *batch, 4, requires_grad=True)
        given = (state, torch.ones(2, *batch, 4)) if kind == "LSTM" else state
        out = [*tensors_in(layer(torch.ones(5, *batch, 3), given))]
        out[0].sum().backward()
        return [known(each) for each in (*out, state.grad)]

    for batch in ((), (2,)):
        with onednn(kind != "LSTM"):
            expected = results(batch)
            with FakeLikeMode("cpu"):
                assert results(batch) == expected


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_sequence_of_no_steps(kind: str) -> None:
    layer = getattr(nn, kind)(3, 4)
    text = "Expected sequence length to be larger than 0"
    with pytest.raises(RuntimeError, match=text):
        layer(torch.ones(0, 2, 3))
    lamina.fake_like(layer)
    with FakeLikeMode("cpu"), pytest.raises(RuntimeError, match=text):
        layer(torch.ones(0, 2, 3))


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
def test_what_a_library_does_is_refused() -> None:
    for device in ("cuda", "xpu"):
        for kind in ("LSTM", "GRU", "RNN"):
            with FakeLikeMode(device), pytest.raises(UndecidedError, match=f"a recurrent layer on {device}:0.*0 bytes"):
                getattr(nn, kind)(3, 4)(torch.ones(5, 2, 3))


def runs_in_onednn() -> bool:
    with DispatchLog() as log, torch.no_grad():
        nn.LSTM(3, 4)(torch.ones(5, 2, 3))
    return any("mkldnn_rnn_layer" in record.op for record in log.records)


@pytest.mark.parametrize(("steps", "batch", "width"), [(1, 1, 5), (7, 3, 20), (40, 8, 64), (33, 5, 100)])
def test_what_onednn_keeps_for_the_backward(steps: int, batch: int, width: int) -> None:
    if not runs_in_onednn():
        pytest.skip("this build does it without oneDNN")
    real = torch.ones(steps, batch, width, requires_grad=True)
    expected = run(nn.LSTM(width, width), real)
    with FakeLikeMode("cpu"):
        got = run(nn.LSTM(width, width), FakeLikeTensor.from_tensor(real))
    assert got == expected
    assert any(dtype is torch.uint8 and shape[0] > 1000 for shape, _, dtype, _ in expected["saved"])


def test_a_layer_that_is_too_large_to_ask_onednn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not runs_in_onednn():
        pytest.skip("this build does it without oneDNN")
    products = 5 * 2 * (4 * 4) * (3 + 4)
    with FakeLikeMode("cpu"):
        layer, x = nn.LSTM(3, 4), torch.ones(5, 2, 3)
        monkeypatch.setattr(recurrent, "MOST", products)
        assert layer(x)[0].shape == (5, 2, 4)
        monkeypatch.setattr(recurrent, "MOST", products - 1)
        with pytest.raises(UndecidedError, match=r"oneDNN.*1\.1e\+03 products.*mkldnn\.enabled = False"):
            layer(x)
        with onednn(False):
            assert layer(x)[0].shape == (5, 2, 4)


def test_a_packed_sequence_needs_values() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(5, 2, 3), torch.tensor([5, 3]))
    sizes = packed.batch_sizes
    with FakeLikeMode("cpu"):
        fake = FakeLikeTensor.from_tensor(packed.data)
        for kind in ("LSTM", "GRU", "RNN"):
            given = nn.utils.rnn.PackedSequence(fake, FakeLikeTensor.from_tensor(sizes))
            with pytest.raises((UndecidedError, lamina.DataDependentError), match="value"):
                getattr(nn, kind)(3, 4)(given)
