"""copy, deepcopy, pickle and torch.save: class, context, grad, Parameter-ness, attributes and sharing are kept."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Granularity, Scaled, Sum, Tagged, nest, run_python

from lamina import WrapperTensor


def examples() -> dict[str, Any]:
    return {
        "one": Clear(torch.arange(6.0).reshape(2, 3)),
        "transposed": Clear(torch.arange(6.0).reshape(2, 3).t()),
        "context": Tagged(torch.ones(2, 3), 4, "x"),
        "two": Scaled.from_plain(torch.randn(2, 3), granularity=Granularity.TENSOR),
        "run": Sum((torch.ones(2, 3), torch.zeros(2, 3))),
        "optional": Sum((torch.ones(2, 3),), torch.ones(3)),
        "nested": nest(Clear, torch.ones(2, 3), 3),
        "mixed": Clear(Scaled.from_plain(torch.randn(2, 3))),
        "0-d": Clear(torch.tensor(2.0)),
        "empty": Clear(torch.ones(0, 3)),
        "complex": Clear(torch.ones(2, dtype=torch.complex64).conj()),
        "int8": Clear(torch.ones(2, dtype=torch.int8)),
    }


def leaves(w: Any) -> list[torch.Tensor]:
    tensors = [getattr(w, name) for name in w.__tensor_flatten__()[0]]
    return [leaf for t in tensors for leaf in (leaves(t) if isinstance(t, WrapperTensor) else [t])]


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    assert a.__tensor_flatten__()[1] == b.__tensor_flatten__()[1]
    assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
    first = leaves(a)[0]  # deepcopy resolves the bits of plain tensors: outer and inner have to agree
    assert first.dtype != a.dtype or (a.is_conj(), a.is_neg()) == (first.is_conj(), first.is_neg())
    assert a.requires_grad is b.requires_grad
    assert isinstance(a, torch.nn.Parameter) is isinstance(b, torch.nn.Parameter)
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert torch.equal(x, y)
        assert x.stride() == y.stride()


def pickled(w: Any) -> Any:
    return pickle.loads(pickle.dumps(w))


def saved(w: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(w, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


WAYS: dict[str, Any] = {"deepcopy": copy.deepcopy, "pickle": pickled, "torch.save": saved}


@pytest.mark.parametrize("example", examples())
@pytest.mark.parametrize("way", WAYS)
def test_the_copy_is_equal_and_owns_its_memory(way: str, example: str) -> None:
    w = examples()[example]
    out = WAYS[way](w)
    same(out, w)
    for x, y in zip(leaves(out), leaves(w), strict=True):
        assert x.numel() == 0 or x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


@pytest.mark.parametrize("way", WAYS)
def test_parameters_attributes_and_requires_grad(way: str) -> None:
    for example, w in examples().items():
        if not (w.is_floating_point() or w.is_complex()):
            continue
        for wanted in (True, False):
            p: Any = torch.nn.Parameter(w, requires_grad=wanted)
            p.note = {"owner": [1, 2]}
            out = WAYS[way](p)
            same(out, p)
            assert isinstance(out, torch.nn.Parameter), example
            assert out.note == {"owner": [1, 2]}
            assert out.note is not p.note
            leaf = WAYS[way](w.detach().requires_grad_(wanted))
            assert leaf.requires_grad is wanted
            assert not isinstance(leaf, torch.nn.Parameter)


def test_deepcopy_keeps_the_gradient_and_copies_it() -> None:
    for cls in (Clear, Doubled, Tagged):
        p = torch.nn.Parameter(cls.from_plain(torch.ones(2)))
        (p * 3).sum().backward()
        out = copy.deepcopy(p)
        assert type(out.grad) is type(p.grad)
        assert out.grad is not p.grad
        plain = out.grad.to_plain() if isinstance(out.grad, WrapperTensor) else out.grad
        assert plain.tolist() == [3, 3]
        (out * 3).sum().backward()
        assert (p.grad.to_plain() if isinstance(p.grad, WrapperTensor) else p.grad).tolist() == [3, 3]


def test_deepcopy_of_a_non_leaf_is_refused_as_for_plain() -> None:
    w = Clear(torch.ones(2)).requires_grad_() * 2
    with pytest.raises(RuntimeError, match=r"leaves.*Clear.*detach"):
        copy.deepcopy(w)
    copy.deepcopy(w.detach())


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_sharing_inside_one_object_is_kept(way: str) -> None:
    w = Clear(torch.ones(2))
    out = WAYS[way]([w, w])
    assert out[0] is out[1]
    shared = torch.ones(2)
    a, b = WAYS[way]((Clear(shared), Clear(shared)))
    assert a.elem.data_ptr() == b.elem.data_ptr()
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    tied = torch.nn.Sequential(layer, torch.nn.Linear(2, 2, bias=False))
    tied[1].weight = layer.weight
    twin = WAYS[way](tied)
    assert twin[0].weight is twin[1].weight
    assert type(twin[0].weight) is Clear


def test_torch_save_keeps_sharing_of_storage() -> None:
    shared = torch.ones(4)
    out = saved([Clear(shared), Clear(shared[1:3]), shared])
    out[2].fill_(7)
    assert out[0].elem.tolist() == [7] * 4
    assert out[1].elem.tolist() == [7] * 2


def test_deepcopy_of_a_view_is_a_tensor_of_its_own() -> None:
    w = Clear(torch.arange(6.0).reshape(2, 3))
    out = copy.deepcopy(w.t()[1:])
    same(out, w.t()[1:])
    out.add_(1)
    assert torch.equal(w.elem, torch.arange(6.0).reshape(2, 3))
    assert not out._is_view()


def test_a_view_and_its_base_stay_together_in_one_copy() -> None:
    w = Clear(torch.arange(4.0))
    base, view = copy.deepcopy((w, w[1:]))
    view.elem.fill_(9)
    assert base.elem.tolist() == [0, 9, 9, 9]


def test_copy_copy_is_a_shallow_copy() -> None:
    for w in examples().values():
        out = copy.copy(w)
        same(out, w)
        assert [x.data_ptr() for x in leaves(out)] == [y.data_ptr() for y in leaves(w)]
    p: Any = torch.nn.Parameter(Clear(torch.ones(2)))
    p.note = [1]
    out = copy.copy(p)
    assert isinstance(out, torch.nn.Parameter)
    assert out.note is p.note


def test_deepcopy_uses_the_memo() -> None:
    w = Clear(torch.ones(2))
    memo: dict[int, Any] = {}
    assert copy.deepcopy(w, memo) is copy.deepcopy(w, memo)
    other = object()
    assert copy.deepcopy(w, {id(w): other}) is other
    assert w.__deepcopy__({id(w): other}) is other


def test_an_attribute_that_refers_back_is_copied_once() -> None:
    w: Any = Clear(torch.ones(2))
    w.me = w
    out = copy.deepcopy(w)
    assert out.me is out


def test_context_is_shared_or_equal() -> None:
    w = Tagged(torch.ones(1), (1, (2, "x")))
    assert copy.deepcopy(w).tag == (1, (2, "x"))
    assert pickled(w).tag == (1, (2, "x"))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol(protocol: int) -> None:
    for w in examples().values():
        same(pickle.loads(pickle.dumps(w, protocol)), w)


def test_hooks_do_not_follow_a_pickle() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    w.register_hook(lambda g: g)
    try:
        out = pickled(w)
    except Exception as error:  # noqa: BLE001 - plain tensors warn or fail here too
        assert "hook" in str(error) or "pickle" in str(error)  # noqa: PT017
    else:
        assert not out._backward_hooks


def test_a_fresh_process_loads_with_weights_only(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(Scaled.from_plain(layer.weight.detach()))
    layer.bias = torch.nn.Parameter(Clear(layer.bias.detach()))
    torch.save({"state": layer.state_dict(), "all": examples(), "p": layer.weight}, path)
    done = run_python(f"""
        import torch, subjects
        loaded = torch.load({str(path)!r}, weights_only=True)
        assert type(loaded["state"]["weight"]) is subjects.Scaled
        assert type(loaded["state"]["bias"]) is subjects.Clear
        assert isinstance(loaded["p"], torch.nn.Parameter)
        assert loaded["all"]["context"].label == "x"
        assert loaded["all"]["two"].granularity is subjects.Granularity.TENSOR
        print((loaded["p"] @ torch.ones(3, 1)).shape)
    """)
    assert done.returncode == 0, done.stderr[-800:]
    assert "torch.Size([2, 1])" in done.stdout


def test_loading_maps_devices_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save({name: w for name, w in examples().items() if name != "complex"}, path)
    for options in ({"map_location": "meta"}, {"mmap": True}, {"map_location": torch.device("cpu")}):
        loaded = torch.load(path, weights_only=True, **options)
        for name, w in loaded.items():
            assert type(w) is type(examples()[name])
            assert w.shape == examples()[name].shape
            if options == {"map_location": "meta"}:
                assert w.device.type == "meta"


def test_the_pickle_of_a_context_is_the_same_in_another_process() -> None:
    code = """
        import hashlib, pickle, torch, subjects
        w = subjects.Scaled(torch.ones(2, dtype=torch.int8), torch.ones(2))
        t = subjects.Tagged(torch.ones(2), (1, "x"), "label")
        text = pickle.dumps((w.__tensor_flatten__(), t.__tensor_flatten__()))
        print(hashlib.sha256(text).hexdigest())
    """
    other = run_python(code)
    assert other.returncode == 0, other.stderr[-800:]
    w, t = Scaled(torch.ones(2, dtype=torch.int8), torch.ones(2)), Tagged(torch.ones(2), (1, "x"), "label")
    text = pickle.dumps((w.__tensor_flatten__(), t.__tensor_flatten__()))
    assert other.stdout.strip() == hashlib.sha256(text).hexdigest()


def test_load_state_dict_keeps_requires_grad_and_class() -> None:
    for wanted in (True, False):
        layer, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        for m, grad in ((layer, wanted), (other, not wanted)):
            m.weight = torch.nn.Parameter(Clear(m.weight.detach()), requires_grad=grad)
        identity = layer.weight
        layer.load_state_dict(other.state_dict())
        assert layer.weight is identity
        assert layer.weight.requires_grad is wanted
        assert torch.equal(layer.weight.elem, other.weight.elem)
        layer.load_state_dict(other.state_dict(), assign=True)
        assert type(layer.weight) is Clear
        assert layer.weight.requires_grad is wanted


def test_deepcopy_of_a_model_with_optimizer_and_ema() -> None:
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    twin = copy.deepcopy(layer)
    assert type(twin.weight) is Clear
    assert torch.equal(twin.weight.elem, layer.weight.elem)
    state = copy.deepcopy(optimizer.state_dict())
    assert type(state["state"][0]["exp_avg"]) is Clear
    optimizer.load_state_dict(saved(optimizer.state_dict()))
    optimizer.step()
    average = torch.optim.swa_utils.AveragedModel(layer)
    average.update_parameters(layer)
    assert type(average.module.weight) is Clear


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")  # as for plain fakes
def test_fake_wrappers_are_copied_as_fakes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        layer = torch.nn.Linear(2, 2)
        layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
        inside = copy.deepcopy(layer)
    for twin in (inside, copy.deepcopy(layer)):
        assert type(twin.weight) is Clear
        assert twin.weight.elem.fake_mode is mode


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")  # as for plain fakes
def test_fake_tensors_in_a_run_are_copied_as_fakes_and_stay_shared() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        shared = torch.ones(2)
        pair = [Sum((shared, torch.ones(2))), Sum((shared, torch.ones(2)))]
    one, other = copy.deepcopy(pair)
    assert all(part.fake_mode is mode for part in one.parts + other.parts)
    assert one.parts[0] is other.parts[0]
    assert one.parts[0] is not shared


def test_a_subclass_with_its_own_attributes_set_in_init_is_restored() -> None:
    w: Any = Clear(torch.ones(2))
    w.extra = torch.ones(3)
    out = copy.deepcopy(w)
    assert out.extra.tolist() == [1, 1, 1]
    assert out.extra is not w.extra
    assert saved(w).extra.tolist() == [1, 1, 1]
