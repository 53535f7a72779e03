"""The life of a FakeLikeTensor: views, versions, autograd, optimizers, copies, pickles, storages."""

from __future__ import annotations

import copy
import io
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lamina import DataSwapError, FakeLikeTensor
from lamina.modes import FakeLikeMode

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def fake(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cuda:0") -> Any:
    return FakeLikeTensor.from_tensor(torch.empty(shape, dtype=dtype), device)


def shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def test_views_alias_and_are_tracked() -> None:
    base = fake(4, 6)
    for view in (base.t(), base[1:], base.view(24), base.unflatten(1, (2, 3)), base.diagonal()):
        assert view._is_view()
        assert view._base is base
        assert shares(view, base)
    parts = base.split(2)
    assert all(shares(part, base) for part in parts)
    assert [part.storage_offset() for part in parts] == [0, 12]
    assert not shares(base.clone(), base)
    assert not shares(base.t().reshape(24), base)
    assert shares(base.reshape(24), base)
    assert base.contiguous() is base


def test_writes_count_as_versions() -> None:
    target = fake(3)
    view = target[1:]
    for count, write in enumerate(
        (
            lambda: target.add_(1),
            lambda: view.mul_(2),
            lambda: torch._foreach_add_([target], 1.0),
            lambda: torch.add(target, 1, out=target),
            lambda: target.copy_(fake(3)),
            target.zero_,
            lambda: target.__setitem__(0, 1.0),
            lambda: target.index_fill_(0, fake(1, dtype=torch.int64), 2.0),
        ),
        start=1,
    ):
        write()
        assert (target._version, view._version) == (count, count)


def test_a_write_to_what_autograd_saved_is_an_error() -> None:
    leaf = fake(3).requires_grad_()
    for write in (lambda t: t.add_(1), lambda t: torch._foreach_add_([t], 1.0)):
        saved = leaf.exp()
        write(saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.add_(1)


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:3", "mps:0", "xpu:1"])
def test_backward(device: str) -> None:
    weight, seen = fake(4, 2, device=device).requires_grad_(), []
    weight.register_hook(lambda gradient: seen.append(str(gradient.device)))
    hidden = (fake(3, 4, device=device) @ weight).relu()
    hidden.retain_grad()
    hidden.sum().backward(retain_graph=True)
    hidden.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        hidden.sum().backward()
    for gradient in (weight.grad, hidden.grad):
        assert type(gradient) is FakeLikeTensor
        assert str(gradient.device) == device
    assert weight.grad.shape == (4, 2)
    assert seen == [device, device]
    (second,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    second.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant: bool) -> None:
    weight, calls = fake(4, 4).requires_grad_(), []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(type(x))
        return (x @ weight).relu()

    checkpoint(block, fake(2, 4).requires_grad_(), use_reentrant=reentrant).sum().backward()
    assert calls == [FakeLikeTensor] * 2
    assert weight.grad.shape == (4, 4)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    **{name: {} for name in "Adadelta Adagrad Adam Adamax AdamW Muon NAdam RAdam RMSprop Rprop".split()},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", ["single", "foreach", "fused"])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_optimizers(name: str, how: str, device: str) -> None:
    if (how == "fused" and name not in FUSED) or (how == "foreach" and name == "Muon"):
        pytest.skip("has no such implementation")
    options = {} if name == "Muon" else {"foreach": how == "foreach"}
    if how == "fused":
        options = {"fused": True}
    with FakeLikeMode(device):
        weights = [nn.Parameter(torch.ones(4, 2)), nn.Parameter(torch.ones(2, 4))]
        try:
            optimizer = getattr(torch.optim, name)(weights, **OPTIMIZERS[name], **options)
        except RuntimeError as error:
            if "`fused=True` requires" not in str(error):
                raise
            pytest.skip("this version of PyTorch has no such kernel")
        if (name, how, device) == ("Adagrad", "fused", "cuda:0") and VERSION < (2, 13):
            pytest.skip("fused on the CPU alone")
        for _ in range(2):
            optimizer.zero_grad()
            (weights[0] @ weights[1]).sum().backward()
            version = weights[0]._version
            optimizer.step()
            assert weights[0]._version > version
    for weight in weights:
        state = [each for each in optimizer.state[weight].values() if isinstance(each, torch.Tensor) and each.dim()]
        assert all(type(each) is FakeLikeTensor and each.device == weight.device for each in state)
        assert state


def test_storages_have_the_size_that_they_would_have() -> None:
    base = fake(4, 6)
    assert base.untyped_storage().nbytes() == 96
    assert base[1].untyped_storage().nbytes() == 96
    assert base.expand(5, 4, 6).untyped_storage().nbytes() == 96
    assert fake(3, dtype=torch.bfloat16).untyped_storage().nbytes() == 6
    assert fake(0).untyped_storage().nbytes() == 0
    assert base.resize_(10, 10).untyped_storage().nbytes() == 400
    assert base.resize_(2).untyped_storage().nbytes() == 400
    out = fake(0)
    torch.mul(fake(8), 2, out=out)
    assert out.untyped_storage().nbytes() == 32
    base.untyped_storage().resize_(0)
    assert base.untyped_storage().nbytes() == 0


def test_data_shares_and_can_be_set() -> None:
    weight = nn.Parameter(fake(3))
    weight.data.add_(1)
    assert (weight._version, shares(weight.data, weight), weight.data.requires_grad) == (0, True, False)
    other = fake(5, 2)
    weight.data = other
    assert (weight.shape, weight.stride(), shares(weight, other)) == ((5, 2), (2, 1), True)
    assert (weight + 1).shape == (5, 2)
    for wrong in (torch.ones(3), fake(3, device="cpu"), fake(3, dtype=torch.float16)):
        with pytest.raises(DataSwapError, match="class, dtype and device"):
            weight.data = wrong


def test_deepcopy_keeps_claim_parameters_and_sharing() -> None:
    base = fake(4, 4)
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(base)
    module.tied = module.weight
    module.register_buffer("row", module.weight.detach()[1])
    copied = copy.deepcopy(module)
    assert type(copied.weight) is FakeLikeTensor
    assert isinstance(copied.weight, nn.Parameter)
    assert copied.tied is copied.weight
    assert shares(copied.row, copied.weight)
    assert not shares(copied.weight, module.weight)
    assert (copied.row.storage_offset(), str(copied.row.device)) == (4, "cuda:0")
    assert copied.weight.metadata is module.weight.metadata
    assert (copied.weight @ copied.row).shape == (4,)


def test_pickle_and_checkpoints(tmp_path: Path) -> None:
    original = fake(4, 6, dtype=torch.complex64)[1:].t().conj()
    loaded = pickle.loads(pickle.dumps(original))
    torch.save({"x": original, "p": nn.Parameter(fake(2))}, tmp_path / "x.pt")
    saved = torch.load(tmp_path / "x.pt")
    for one in (loaded, saved["x"]):
        assert type(one) is FakeLikeTensor
        assert one.metadata is original.metadata
        assert (one.stride(), one.storage_offset(), one.is_conj()) == ((1, 6), 6, True)
        assert (one + 1).metadata is (original + 1).metadata
    assert isinstance(saved["p"], nn.Parameter)
    assert saved["p"].requires_grad
    assert (tmp_path / "x.pt").stat().st_size < 5000


def _through_pickle(graph: Any) -> Any:
    return pickle.loads(pickle.dumps(graph))


def _through_torch(graph: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(graph, file)
    file.seek(0)
    return torch.load(file, **options)


WAYS = {
    "pickle": _through_pickle,
    "torch, weights only": partial(_through_torch, weights_only=True),
    "torch, anything": partial(_through_torch, weights_only=False),
    "copy": lambda graph: {name: copy.copy(tensor) for name, tensor in graph.items()},
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_shares_a_storage_does_so_in_a_copy_and_in_what_is_loaded(way: str) -> None:
    module = nn.Linear(4, 4, bias=False)
    module.weight = nn.Parameter(fake(4, 4))
    module.register_parameter("tied", module.weight)
    module.register_parameter("also", nn.Parameter(module.weight.detach()))
    module.register_buffer("row", module.weight.detach()[1])
    module.register_buffer("own", fake(2, 8))
    if way == "copy":
        graph = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    else:
        graph = dict(module.state_dict())
    got = WAYS[way](graph)
    assert [name for name, each in got.items() if shares(each, got["weight"])] == ["weight", "tied", "also", "row"]
    assert shares(got["weight"], graph["weight"]) == (way == "copy")  # as of plain tensors
    assert all(got[name].metadata is graph[name].metadata for name in graph)
    assert got["own"].untyped_storage().nbytes() == 64
    assert got["row"].untyped_storage().nbytes() == 64
    got["weight"].detach().add_(1)
    assert (got["row"] @ got["weight"]).shape == (4,)


def test_a_view_that_is_pickled_alone_keeps_the_size_of_its_storage() -> None:
    row = fake(4, 4)[1]
    loaded = pickle.loads(pickle.dumps(row))
    assert (loaded.untyped_storage().nbytes(), loaded.storage_offset()) == (64, 4)
    assert not shares(loaded, row)
    assert not shares(loaded, pickle.loads(pickle.dumps(row)))


def test_results_of_one_storage_share_it() -> None:
    q, _, v = fake(6, 4).chunk(3)
    assert shares(q, v)
    real_part = torch.view_as_real(fake(3, dtype=torch.complex64))
    assert (real_part.shape, real_part.dtype) == ((3, 2), torch.float32)
    first, second = torch.aminmax(fake(3))
    assert not shares(first, second)


def test_conj_and_neg_bits() -> None:
    values = fake(3, dtype=torch.complex64)
    assert values.conj().is_conj()
    assert shares(values.conj(), values)
    assert values.conj().imag.is_neg()
    assert not values.conj().resolve_conj().is_conj()
    assert not (values.conj() + 1).is_conj()


def test_inference_mode() -> None:
    outside = fake(4, 6)
    with torch.inference_mode():
        assert (outside @ outside.t()).shape == (4, 4)
        assert outside.reshape(24).shape == (24,)
        assert str(nn.functional.linear(outside, outside).device) == "cuda:0"


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (None, ["cuda:1", "cpu"]),
        ("cpu", ["cpu", "cpu"]),
        ("cuda", ["cuda:0", "cuda:0"]),
        (torch.device("meta"), ["meta", "meta"]),
        ({"cuda:1": "cuda:0"}, ["cuda:0", "cpu"]),
        (lambda storage, _: storage, ["cpu", "cpu"]),
        (lambda *_: None, ["cuda:1", "cpu"]),
    ],
    ids=["none", "cpu", "cuda", "meta", "dict", "all on the CPU", "left to torch"],
)
def test_what_is_loaded_claims_what_map_location_says(location: Any, expected: list[str], weights_only: bool) -> None:
    whole = fake(4, 6, device="cuda:1")
    file = io.BytesIO()
    torch.save([whole, fake(3, device="cpu"), whole[1:]], file)
    file.seek(0)
    loaded = torch.load(file, map_location=location, weights_only=weights_only)
    assert [str(each.device) for each in loaded] == [*expected, expected[0]]
    assert shares(loaded[0], loaded[2])
    assert loaded[2].storage_offset() == 6
    assert str(pickle.loads(pickle.dumps(whole)).device) == "cuda:1"


def test_the_copy_of_a_parameter_has_no_gradient() -> None:
    """As with plain tensors: a leaf that is no Parameter keeps it."""
    for make in (torch.ones, fake):
        parameter, leaf = torch.nn.Parameter(make(3)), make(3).requires_grad_()
        (parameter * leaf).sum().backward()
        assert copy.deepcopy(parameter).grad is None
        assert copy.deepcopy(leaf).grad is not None
