"""FakeLikeTensor where values are asked: the error, the repr, and the way to a real tensor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lamina import DataDependentError, FakeLikeTensor, LayoutError
from lamina.modes import FakeLikeMode


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cuda:3") -> FakeLikeTensor:
    return FakeLikeTensor.from_tensor(torch.empty(shape, dtype=dtype), device)


def number(dtype: torch.dtype = torch.float32) -> Any:
    return fake(dtype=dtype)


NEEDS_VALUES: dict[str, Callable[[], Any]] = {
    "item": lambda: number().item(),
    "bool": lambda: bool(number()),
    "if": lambda: 1 if (fake(3) > 0).any() else 0,
    "int": lambda: int(number()),
    "float": lambda: float(number()),
    "complex": lambda: complex(number()),
    "index": lambda: [1, 2, 3][number(torch.int64)],
    "range": lambda: range(number(torch.int64)),
    "slice": lambda: torch.ones(3)[: number(torch.int64)],
    "contains": lambda: 1.0 in fake(3),
    "format": lambda: f"{number():.3f}",
    "tolist": lambda: fake(3).tolist(),
    "numpy": lambda: fake(3).numpy(),
    "numpy force": lambda: fake(3).numpy(force=True),
    "asarray": lambda: np.asarray(fake(3)),
    "to_plain": lambda: fake(3).to_plain(),
    "apply_": lambda: fake(3).apply_(abs),
    "nonzero": lambda: fake(3).nonzero(),
    "nonzero as tuple": lambda: fake(3).nonzero(as_tuple=True),
    "argwhere": lambda: torch.argwhere(fake(3)),
    "where of one": lambda: torch.where(fake(3)),
    "mask": lambda: fake(3)[fake(3, dtype=torch.bool)],
    "masked_select": lambda: torch.masked_select(fake(3), fake(3, dtype=torch.bool)),
    "unique": lambda: fake(3).unique(),
    "unique along": lambda: fake(3, 4).unique(dim=0),
    "unique_consecutive": lambda: fake(3).unique_consecutive(),
    "bincount": lambda: fake(3, dtype=torch.int64).bincount(),
    "repeat_interleave": lambda: torch.repeat_interleave(fake(3), fake(3, dtype=torch.int64)),
    "tensor_split": lambda: torch.tensor_split(fake(3), fake(2, dtype=torch.int64, device="cpu")),
    "equal": lambda: torch.equal(fake(3), fake(3)),
    "allclose": lambda: torch.allclose(fake(3), fake(3)),
    "is_nonzero": lambda: torch.is_nonzero(number()),
    "one_hot": lambda: nn.functional.one_hot(fake(3, dtype=torch.int64)),
    "narrow": lambda: fake(3).narrow(0, number(torch.int64), 1),
    "lstsq": lambda: torch.linalg.lstsq(fake(3, 3, device="cpu"), fake(3, 1, device="cpu")),
}


@pytest.mark.parametrize("name", NEEDS_VALUES)
def test_values_are_refused_with_the_line_and_what_to_do(name: str) -> None:
    with pytest.raises(DataDependentError) as caught:
        NEEDS_VALUES[name]()
    assert isinstance(caught.value, RuntimeError)
    assert re.match(rf"[\w.]+ at {re.escape(__file__)}:\d+ needs values, and FakeLikeTensor\(", str(caught.value))
    assert caught.value.site is not None
    assert caught.value.advice in str(caught.value)
    assert len(caught.value.advice) > 10


def test_the_error_says_operator_operand_and_advice() -> None:
    with pytest.raises(DataDependentError) as caught:
        fake(2, 3)[fake(2, 3, dtype=torch.bool)]
    text = str(caught.value)
    assert "aten.index.Tensor" in text
    assert "FakeLikeTensor(float32[2, 3]) on cuda:3, FakeLikeTensor(bool[2, 3]) on cuda:3" in text
    assert "torch.where(mask, x, y) in place of x[mask]" in text


def test_of_numbers_alone_too() -> None:
    with FakeLikeMode("cpu"), pytest.raises(DataDependentError, match=r"aten\.equal"):
        torch.corrcoef(torch.ones(3, 4))


def test_masks_that_keep_the_shape_are_no_reading() -> None:
    values, mask = fake(3), fake(3, dtype=torch.bool)
    values[mask] = 0.0
    assert torch.where(mask, values, 0.0).shape == (3,)
    assert torch.nonzero_static(mask, size=2).shape == (2, 1)
    assert torch.repeat_interleave(values, fake(3, dtype=torch.int64), output_size=7).shape == (7,)


def test_repr_says_what_there_is() -> None:
    assert repr(fake(2, 3)) == "FakeLikeTensor(size=(2, 3), dtype=torch.float32, device='cuda:3')"
    assert str(fake(device="cpu")) == "FakeLikeTensor(size=(), dtype=torch.float32, device='cpu')"
    leaf = fake(2).requires_grad_()
    assert repr(leaf).endswith("device='cuda:3', requires_grad=True)")
    assert repr(leaf.sum()).endswith("grad_fn=<SumBackward0>)")
    assert repr(nn.Parameter(fake(2))).startswith("Parameter containing:\nFakeLikeTensor(size=(2,)")
    assert f"{fake(2)}" == repr(fake(2))


@pytest.mark.parametrize("make", [lambda t: t, lambda t: t[1:].t(), lambda t: t[:0], lambda t: t.expand(2, 4, 6)])
def test_materialize_gives_a_real_tensor_of_the_same_metadata(make: Callable[[Any], Any]) -> None:
    plain = make(torch.ones(4, 6, dtype=torch.bfloat16))
    real = FakeLikeTensor.from_tensor(plain, "cuda").requires_grad_().materialize("cpu", nn.init.zeros_)
    assert type(real) is torch.Tensor
    assert (real.shape, real.stride(), real.storage_offset()) == (plain.shape, plain.stride(), plain.storage_offset())
    assert (real.dtype, real.device.type, real.requires_grad, real.is_leaf) == (torch.bfloat16, "cpu", True, True)
    assert not real.detach().any()


def test_materialize_keeps_parameters_and_conjugation() -> None:
    assert type(nn.Parameter(fake(3), requires_grad=False).materialize("cpu")) is nn.Parameter
    conjugated = fake(3, dtype=torch.complex64).conj().materialize("cpu", nn.init.ones_)
    assert conjugated.is_conj()
    assert fake(3, device="cpu").materialize().shape == (3,)
    assert torch.equal(fake(3).materialize("cpu", lambda t: t.fill_(7)), torch.full((3,), 7.0))


def test_from_tensor_takes_over_all_metadata() -> None:
    plain = torch.ones(4, 6, dtype=torch.complex64)[1:].t().conj()
    made = FakeLikeTensor.from_tensor(plain, "cuda")
    assert (made.shape, made.stride(), made.storage_offset()) == ((6, 3), (1, 6), 6)
    assert made.is_conj()
    assert str(made.device) == "cuda:0"
    assert type(FakeLikeTensor.from_tensor(nn.Parameter(torch.ones(2)))) is FakeLikeTensor
    assert isinstance(FakeLikeTensor.from_tensor(nn.Parameter(torch.ones(2))), nn.Parameter)
    assert FakeLikeTensor.from_tensor(torch.ones(2, requires_grad=True)).requires_grad


def test_sparse_is_refused_at_both_ends() -> None:
    with pytest.raises(LayoutError, match="sparse_coo"):
        FakeLikeTensor.from_tensor(torch.eye(3).to_sparse())
    with pytest.raises(LayoutError, match="sparse_coo"):
        fake(3, 3).to_sparse()


def test_new_tensor_claims() -> None:
    made = fake(3, dtype=torch.float16).new_tensor([1, 2])
    assert (made.dtype, str(made.device), made.shape) == (torch.float16, "cuda:3", (2,))
    assert str(fake(3).new_tensor([1.0], device="cpu", dtype=torch.int8).device) == "cpu"


def test_real_places_split_a_fake() -> None:
    parts = torch.tensor_split(fake(5, 2), torch.tensor([1, 3]))
    assert [(tuple(part.shape), str(part.device)) for part in parts] == [
        ((1, 2), "cuda:3"),
        ((2, 2), "cuda:3"),
        ((2, 2), "cuda:3"),
    ]
    assert [tuple(part.shape) for part in torch.empty(5, device="meta").tensor_split(torch.tensor([2]))] == [(2,), (3,)]


def test_a_loader_says_where_batches_come_from() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    with FakeLikeMode(), pytest.raises(DataDependentError, match=r"A DataLoader draws a seed.*outside of FakeLikeMode"):
        next(iter(torch.utils.data.DataLoader(data)))


def test_a_scaler_of_gradients_goes_with_a_fused_optimizer_and_says_so() -> None:
    with FakeLikeMode("cuda"):
        layer, scaler = nn.Linear(3, 3), torch.amp.GradScaler("cuda")
        optimizers = [torch.optim.AdamW(layer.parameters(), fused=fused) for fused in (True, False)]
        for optimizer in optimizers:
            scaler.scale(layer(torch.ones(2, 3)).sum()).backward()
            if optimizer is optimizers[1]:
                with pytest.raises(DataDependentError, match=r"GradScaler reads whether .* A fused optimizer"):
                    scaler.step(optimizer)
            else:
                scaler.step(optimizer)
                scaler.update()
        assert all(len(optimizers[0].state[p]) == 3 for p in layer.parameters())
