"""State dicts as plain tensors and texts, through real safetensors files: class, context, ties, views, flags and order
come back, bit for bit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from subjects import Clear, Doubled, Granularity, Scaled, Sum, Tagged, nest, run_python
from torch import nn

import lamina
from lamina import (
    CheckpointError,
    LoggingTensor,
    MissingTensorsError,
    ScaledInt8Tensor,
    WrapperTensor,
    flatten_state_dict,
    unflatten_state_dict,
)


def examples() -> dict[str, Any]:
    grid = torch.arange(6.0).reshape(2, 3)
    int8 = ScaledInt8Tensor.quantize(torch.randn(4, 3))
    return {
        "plain": grid + 1,
        "plain.transposed": (grid + 2).t(),
        "0-d": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "one": Clear(grid.clone()),
        "transposed": Clear(grid.clone().t()),
        "context": Tagged(torch.ones(2, 3), 4, "x"),
        "enum": Scaled.from_plain(torch.randn(2, 3), granularity=Granularity.TENSOR),
        "run": Sum((torch.ones(2, 3), torch.zeros(2, 3))),
        "optional": Sum((torch.ones(2, 3),), torch.ones(3)),
        "nested": nest(Clear, torch.ones(2, 3), 3),
        "int8": int8,
        "int8.asymmetric": ScaledInt8Tensor.quantize(torch.randn(4, 6), lamina.PerGroup(3), symmetric=False),
        "int8.half": ScaledInt8Tensor.quantize(torch.randn(4, 3), lamina.PerTensor(), torch.bfloat16),
        "int8.t": ScaledInt8Tensor.quantize(torch.randn(4, 3)).t(),
        "log of int8": LoggingTensor(ScaledInt8Tensor.quantize(torch.randn(4, 3))),
        "bool": Clear(torch.tensor([True, False])),
        "complex": Clear(torch.randn(3, dtype=torch.complex64)),
    }


def same(a: Any, b: Any) -> None:
    """Class, context, geometry, flags and bits are equal, at every level."""
    assert type(a) is type(b)
    assert (a.shape, a.stride(), a.dtype, a.requires_grad) == (b.shape, b.stride(), b.dtype, b.requires_grad)
    assert isinstance(a, nn.Parameter) is isinstance(b, nn.Parameter)
    if not isinstance(a, WrapperTensor):
        assert torch.equal(a, b)
        return
    names, context = a.__tensor_flatten__()
    assert (names, context) == b.__tensor_flatten__()
    for name in names:
        same(getattr(a, name), getattr(b, name))


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes


def through_file(state: Any, folder: Path) -> dict[str, Any]:
    """The state dict after a save and a load."""
    path = folder / "model.safetensors"
    tensors, metadata = flatten_state_dict(state)
    save_file(tensors, path, metadata)
    with safe_open(path, framework="pt") as file:
        return unflatten_state_dict(load_file(path), file.metadata())


def test_every_kind_of_tensor_comes_back_from_a_file(tmp_path: Path) -> None:
    state = examples()
    loaded = through_file(state, tmp_path)
    assert list(loaded) == list(state)
    for name, value in state.items():
        same(loaded[name], value)


def test_the_tensors_are_plain_contiguous_and_named_for_what_they_are() -> None:
    tensors, metadata = flatten_state_dict(examples())
    assert {type(t) for t in tensors.values()} == {torch.Tensor}
    assert all(t.is_contiguous() and not t.requires_grad for t in tensors.values())
    assert {"int8.qdata", "int8.scale", "log of int8.elem.qdata", "run.parts.1", "optional.bias"} <= set(tensors)
    assert all(type(key) is type(text) is str for key, text in metadata.items())
    assert len({memory(t) for t in tensors.values() if t.numel()}) == len(tensors) - 1
    weight = ScaledInt8Tensor.quantize(torch.ones(2, 2))
    assert flatten_state_dict({"w": weight})[0]["w.qdata"].data_ptr() == weight.qdata.data_ptr()  # no copy


def test_parameters_and_requires_grad() -> None:
    state = {
        "parameter": nn.Parameter(torch.ones(2)),
        "frozen": nn.Parameter(Clear(torch.ones(2)), requires_grad=False),
        "int8": nn.Parameter(ScaledInt8Tensor.quantize(torch.ones(2, 2))),
        "leaf": Doubled(torch.ones(2)).requires_grad_(),
        "plain": torch.ones(2),
        "result": nn.Parameter(torch.ones(2)) * 2,
    }
    loaded = unflatten_state_dict(*flatten_state_dict(state))
    for name in state.keys() - {"result"}:
        same(loaded[name], state[name])
    assert loaded["result"].is_leaf
    assert loaded["result"].requires_grad


def model() -> nn.Module:
    made = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 7))
    made[3].weight = made[0].weight  # tied
    lamina.wrap_parameters(made, ScaledInt8Tensor.quantize, where=lambda name, *_: name.endswith("weight"))
    return lamina.wrap_parameters(made, LoggingTensor).eval()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("keep_vars", [False, True])
def test_a_model_is_saved_and_loaded(tmp_path: Path, keep_vars: bool, assign: bool) -> None:
    source, target, tokens = model(), model(), torch.arange(7)
    loaded = through_file(source.state_dict(keep_vars=keep_vars), tmp_path)
    assert not torch.equal(source(tokens).to_plain(), target(tokens).to_plain())
    target.load_state_dict(loaded, assign=assign)
    assert torch.equal(source(tokens).to_plain(), target(tokens).to_plain())
    for name, value in source.state_dict().items():
        same(target.state_dict()[name], value)


def test_a_file_of_a_tied_model_holds_the_weight_once(tmp_path: Path) -> None:
    for keep_vars in (False, True):
        state = model().state_dict(keep_vars=keep_vars)
        tensors, _ = flatten_state_dict(state)
        assert [n for n in tensors if "3.weight" in n] == []
        loaded = through_file(state, tmp_path)
        one, other = loaded["0.weight"], loaded["3.weight"]
        assert one.elem.qdata.data_ptr() == other.elem.qdata.data_ptr()
        assert (one is other) is keep_vars  # two names for one object; without keep_vars torch makes two of it


def test_views_share_memory_again(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "row": base[1],
        "base": base,
        "t": Clear(base.t()),
        "left": base[:, :2],
        "end": torch.arange(6.0)[2:],
    }
    tensors, _ = flatten_state_dict(state)
    assert sorted(tensors) == ["base", "end"]
    loaded = through_file(state, tmp_path)
    for name, value in state.items():
        same(loaded[name], value)
    loaded["base"].fill_(7)
    assert {*loaded["row"].tolist(), *loaded["t"].elem.flatten().tolist(), *loaded["left"].flatten().tolist()} == {7}


def test_overlapping_views_without_their_base(tmp_path: Path) -> None:
    base = torch.arange(10.0)
    state = {"first": base[:6], "second": Clear(base[4:9]), "apart": base[9:]}
    tensors, _ = flatten_state_dict(state)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {"first": (9,), "apart": (1,)}
    loaded = through_file(state, tmp_path)
    for name, value in state.items():
        same(loaded[name], value)
    loaded["first"].fill_(7)
    assert loaded["second"].elem.tolist() == [7, 7, 6, 7, 8]


def test_a_transposed_tensor_is_no_base(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    state = {"t": base.t(), "row": base[1]}
    assert flatten_state_dict(state)[0]["t"].tolist() == [0, 1, 2, 3, 4, 5]
    loaded = through_file(state, tmp_path)
    for name, value in state.items():
        same(loaded[name], value)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.integers(1, 3)), min_size=1, max_size=6))
def test_any_slices_alias_as_they_did(slices: list[tuple[int, int, int]]) -> None:
    base = torch.arange(10.0)
    state = {str(i): base[start : start + length : step] for i, (start, length, step) in enumerate(slices)}
    tensors, metadata = flatten_state_dict(state)
    ends = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors.values())
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    loaded = unflatten_state_dict({name: t.clone() for name, t in tensors.items()}, metadata)
    for name, value in state.items():
        value.mul_(3)
        loaded[name].mul_(3)
    assert [t.tolist() for t in loaded.values()] == [t.tolist() for t in state.values()]


def test_what_is_not_contiguous_is_packed(tmp_path: Path) -> None:
    wide = torch.arange(20.0).reshape(2, 10)
    state = {
        "columns": wide[:, :3].clone().as_strided((2, 3), (3, 1)),
        "slice": torch.arange(40.0).reshape(4, 10)[:, 2:5],
        "expanded": Clear(torch.ones(3, 1).expand(3, 1000)),
        "3-d": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        "conj": Clear(torch.randn(2, dtype=torch.complex64).conj()),
    }
    tensors, _ = flatten_state_dict(state)
    assert {name: t.numel() for name, t in tensors.items()} == {
        "columns": 6, "slice": 12, "expanded.elem": 3, "3-d": 24, "conj.elem": 2
    }  # fmt: skip
    loaded = through_file(state, tmp_path)
    for name, value in state.items():
        assert torch.equal(plain(value), plain(loaded[name]))
    assert loaded["expanded"].stride() == (1, 0)
    assert loaded["3-d"].stride() == state["3-d"].stride()
    assert loaded["slice"].stride() == (3, 1)  # as clone() has it


def plain(value: Any) -> torch.Tensor:
    return value.to_plain() if isinstance(value, WrapperTensor) else value


def test_a_view_of_decoded_values_is_saved_as_its_values() -> None:
    row = ScaledInt8Tensor.quantize(torch.randn(3, 4)).diagonal()
    loaded = unflatten_state_dict(*flatten_state_dict({"d": row}))
    assert type(loaded["d"]) is torch.Tensor
    assert torch.equal(loaded["d"], plain(row))


def test_a_packed_weight_is_saved_in_the_portable_layout(tmp_path: Path) -> None:
    weight = ScaledInt8Tensor.quantize(torch.randn(8, 16), activation="int16")
    loaded = through_file({"w": nn.Parameter(weight.pack(), requires_grad=False)}, tmp_path)
    same(loaded["w"], nn.Parameter(weight, requires_grad=False))


def test_one_memory_under_two_dtypes_is_refused() -> None:
    floats = torch.ones(4)
    with pytest.raises(CheckpointError, match=r"'a', 'b' share memory under several dtypes: .*float32.*Clone"):
        flatten_state_dict({"a": floats, "b": Clear(floats.view(torch.int32))})


def test_a_log_stays_in_its_process(tmp_path: Path) -> None:
    log = lamina.Log()
    loaded = through_file({"w": LoggingTensor(torch.ones(2), log)}, tmp_path)
    assert loaded["w"].log_handle is None
    with lamina.Log() as here:
        loaded["w"] + 1
    assert [record.op for record in here] == ["aten::add.Tensor"]
    assert len(log) == 0
    log.close()


def test_entries_that_are_no_tensors(tmp_path: Path) -> None:
    extra = {"step": 3, "rate": 0.1, "shape": (2, 3), "dtype": torch.bfloat16, "nested": [None, {"a": True, 2: "b"}]}
    state = {"_extra_state": extra, "inf": float("-inf"), "weight": torch.ones(2)}
    loaded = through_file(state, tmp_path)
    for text in flatten_state_dict(state)[1].values():
        json.loads(text, parse_constant=pytest.fail)  # Infinity is Python's own
    assert loaded["_extra_state"] == extra
    assert loaded["inf"] == float("-inf")
    assert list(loaded) == list(state)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"inside": torch.ones(2)},
            r"'x': as an entry it has a value that can't be saved.*torch:Tensor.*Take the entry",
        ),
        (object(), r"builtins:object, which has no form in JSON"),
        (Granularity.ROW, r"not among the classes"),
        (torch.ones(2).to_sparse(), r"to_dense"),
        (torch.ones(2, device="meta"), r"meta device"),
        (Clear(torch.ones(2, device="meta")), r"meta device"),
        (torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})), r"Mine, a tensor type that is not of lamina"),
        (Tagged(torch.ones(2), b"x"), r"'x': as context of Tagged, 'tag', it has a value that can't be saved: b'x'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_form_is_refused(value: Any, text: str) -> None:
    with pytest.raises(CheckpointError, match=text) as caught:
        flatten_state_dict({"x": value})
    assert caught.value.entry == "x"


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"module\.state_dict\(\), got a Linear"):
        flatten_state_dict(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="no string"):
        flatten_state_dict({3: torch.ones(2)})  # type: ignore[dict-item]


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.integers(0, 3), max_size=6))
def test_any_names(names: dict[str, int]) -> None:
    clashes = {f"{name}.{field}" for name in names for field in ("elem", "parts.0", "elem_")}
    makers = [torch.clone, Clear, lambda t: Sum((t, t + 1)), lambda t: Clear(Clear(t))]
    state: dict[str, Any] = {"__metadata__": torch.zeros(1)}
    for i, name in enumerate(names):
        state[name] = makers[names[name]](torch.full((2,), float(i)))
    state |= {name: torch.full((2,), 9.0) for name in clashes - state.keys()}
    tensors, metadata = flatten_state_dict(state)
    assert "__metadata__" not in tensors
    loaded = unflatten_state_dict(tensors, metadata)
    assert list(loaded) == list(state)
    for name, value in state.items():
        same(loaded[name], value)


def test_odd_names_in_a_file(tmp_path: Path) -> None:
    state = {
        name: Clear(torch.ones(2)) for name in ("", "a.elem", "a", "a.elem.elem", 'ü\n\0"', "__metadata__", "lamina")
    }
    state["a.elem.elem_"] = torch.zeros(2)  # type: ignore[assignment]
    loaded = through_file(state, tmp_path)
    assert list(loaded) == list(state)
    for name, value in state.items():
        same(loaded[name], value)


def test_part_of_the_tensors() -> None:
    state = {"a": ScaledInt8Tensor.quantize(torch.ones(2, 2)), "b": torch.ones(2), "c": torch.zeros(2)}
    tensors, metadata = flatten_state_dict(state)
    some = {name: t for name, t in tensors.items() if name not in ("a.scale", "b")}
    with pytest.raises(
        MissingTensorsError, match=r"missing tensors 'a\.scale', 'b', which make up 'a', 'b'.*shards"
    ) as caught:
        unflatten_state_dict(some, metadata)
    assert caught.value.missing == ("a.scale", "b")
    assert caught.value.entries == ("a", "b")
    own = {key: text for key, text in metadata.items() if key in ("lamina", "lamina:c")}
    assert unflatten_state_dict({"c": tensors["c"]}, own)["c"].tolist() == [0, 0]
    with pytest.raises(CheckpointError, match=r"the metadata say nothing of the tensors 'a\.qdata', 'c'"):
        unflatten_state_dict(some, {"lamina": metadata["lamina"]})


def test_a_tie_without_its_first_name() -> None:
    weight = torch.ones(2)
    tensors, metadata = flatten_state_dict({"a": weight, "b": weight})
    assert list(tensors) == ["a"]
    del metadata["lamina:a"]
    with pytest.raises(CheckpointError, match="'b': it is tied to 'a'"):
        unflatten_state_dict({}, metadata)


def test_other_peoples_metadata_are_left_alone(tmp_path: Path) -> None:
    tensors, metadata = flatten_state_dict({"w": Clear(torch.ones(2))})
    save_file(tensors, tmp_path / "x", {**metadata, "format": "pt", "laminate": "no JSON"})
    with safe_open(tmp_path / "x", framework="pt") as file:
        assert list(unflatten_state_dict(load_file(tmp_path / "x"), file.metadata())) == ["w"]
    save_file(tensors, tmp_path / "y")
    with safe_open(tmp_path / "y", framework="pt") as file, pytest.raises(CheckpointError, match=r"no key 'lamina'"):
        unflatten_state_dict(load_file(tmp_path / "y"), file.metadata())


def test_memory_mapped_tensors_stay_mapped(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    state = {"w": ScaledInt8Tensor.quantize(torch.randn(8, 8)), "t": Clear(torch.randn(8, 4).t())}
    tensors, metadata = flatten_state_dict(state)
    save_file(tensors, path, metadata)
    with safe_open(path, framework="pt") as file:
        mapped = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        loaded = unflatten_state_dict(mapped, file.metadata())
    same(loaded["w"], state["w"])
    same(loaded["t"], state["t"])
    assert loaded["w"].qdata.data_ptr() == mapped["w.qdata"].data_ptr()
    assert loaded["t"].elem.data_ptr() == mapped["t.elem"].data_ptr()
    again, _ = flatten_state_dict(loaded)
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


@dataclass(frozen=True)
class Inner:
    steps: tuple[int, ...]
    kind: Granularity


@dataclass(frozen=True)
class Recipe:
    """A context value of many parts."""

    inner: Inner | None
    dtype: torch.dtype = torch.float16
    rate: float = 0.5


@dataclass(frozen=True)
class Special(Recipe):
    label: str = "special"


class Recorded(WrapperTensor):
    elem: torch.Tensor
    recipe: Recipe = Recipe(None)
    places: tuple[torch.device, ...] = ()
    fallback = lamina.Fallback.UNWRAP


def test_context_of_dataclasses_enums_and_torchs_own(tmp_path: Path) -> None:
    recipe = Special(Inner((1, 2), Granularity.TENSOR), torch.bfloat16, float("inf"), "s")
    w = Recorded(torch.ones(2), recipe, (torch.device("cpu"), torch.device("cuda", 1)))
    loaded = through_file({"w": w}, tmp_path)["w"]
    same(loaded, w)
    assert type(loaded.recipe) is Special
    assert loaded.recipe == recipe


@dataclass(frozen=True)
class Undeclared:
    n: int


def test_context_of_a_class_that_the_declaration_does_not_name() -> None:
    w = Tagged(torch.ones(2), Undeclared(1))  # type: ignore[arg-type]
    with pytest.raises(
        CheckpointError, match=r"Undeclared is not among the classes.*the annotation of the field names"
    ):
        flatten_state_dict({"w": w})


def test_a_fresh_process_reads_what_it_has_imported(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors, metadata = flatten_state_dict({"w": nn.Parameter(Scaled.from_plain(torch.ones(2, 2)))})
    save_file(tensors, path, metadata)
    code = f"""
        import sys, lamina
        from safetensors import safe_open
        from safetensors.torch import load_file
        try:
            with safe_open({str(path)!r}, framework="pt") as file:
                lamina.unflatten_state_dict(load_file({str(path)!r}), file.metadata())
        except lamina.CheckpointError as error:
            print(error)
        print("subjects" in sys.modules)
        import subjects
        with safe_open({str(path)!r}, framework="pt") as file:
            w = lamina.unflatten_state_dict(load_file({str(path)!r}), file.metadata())["w"]
        print(type(w) is subjects.Scaled, w.is_leaf, w.requires_grad)
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    error, imported, loaded = done.stdout.splitlines()
    assert "'w': no lamina type subjects:Scaled exists in this process. Write `import subjects` first" in error
    assert imported == "False"
    assert loaded == "True True True"


def damaged() -> dict[str, tuple[Any, str]]:
    tensor, wrapper = {"index": 0, "tensor": "w"}, {"index": 0, "class": "subjects:Tagged", "context": {}}
    elem = {"elem": {"tensor": "w"}}
    recorded = {"index": 0, "class": f"{__name__}:Recorded", "inner": elem}
    recipe, enum = f"{__name__}:Recipe", "subjects:Granularity"
    return {
        "no JSON": ("{", "damaged: no JSON"),
        "too deep": ("[" * 100_000, "damaged: no JSON"),
        "no object": (3, "damaged: 3 stands where"),
        "no index": ({"tensor": "w"}, "'index' is None"),
        "a bool for an index": ({"index": True, "tensor": "w"}, "'index' is True"),
        "no content": ({"index": 0}, "'inner' is None"),
        "a number for a name": ({"index": 0, "tensor": 3}, "'tensor' is 3"),
        "a flag": ({**tensor, "parameter": 1}, "'parameter' is 1"),
        "a view beyond": ({**tensor, "view": [[2], [4], 1]}, r"lies outside of the tensor 'w' of shape \(4,\)"),
        "a view before": ({**tensor, "view": [[2], [1], -1]}, r"is not \[size, stride, offset\]"),
        "a view of other rank": ({**tensor, "view": [[2], [1, 1], 0]}, r"is not \[size, stride, offset\]"),
        "a grad": ({**wrapper, "inner": {"elem": {"tensor": "i"}}, "requires_grad": True}, "can't require grad"),
        "no class": ({**wrapper, "class": "os:system", "inner": elem}, "no lamina type os:system exists"),
        "no wrapper": ({**wrapper, "class": "torch:Tensor", "inner": elem}, "no lamina type torch:Tensor exists"),
        "a script's class": ({**wrapper, "class": "__main__:X", "inner": elem}, "defined in the script that saved"),
        "an unknown field": ({**wrapper, "inner": {"x": {"tensor": "w"}}}, "has no field 'x'"),
        "an unknown context": ({**wrapper, "inner": elem, "context": {"x": 1}}, "has no field 'x'"),
        "a missing field": ({**wrapper, "inner": {"elem": None}}, "refuses what was read"),
        "a list": ({**wrapper, "inner": {"elem": [{"tensor": "w"}]}}, "refuses what was read"),
        "a value": ({**wrapper, "inner": elem, "context": {"tag": {"what": 1}}}, "is no value that lamina wrote"),
        "an enum": (
            {**wrapper, "inner": elem, "context": {"tag": {"enum": "os:system", "member": "x"}}},
            "no class os:system",
        ),
        "no enum": ({**recorded, "context": {"recipe": {"enum": recipe, "member": "x"}}}, f"no class {recipe}"),
        "no dataclass": ({**recorded, "context": {"recipe": {"object": enum, "fields": {}}}}, "is no dataclass"),
        "other fields": ({**recorded, "context": {"recipe": {"object": recipe, "fields": {"x": 1}}}}, "is no value"),
        "a dtype": (
            {**wrapper, "inner": elem, "context": {"tag": {"torch": "torch.load"}}},
            "is no value that lamina wrote",
        ),
        "an unhashable": ({**wrapper, "inner": elem, "context": {"tag": [1]}}, "can't be hashed"),
    }


@pytest.mark.parametrize("how", damaged())
def test_damaged_metadata(how: str) -> None:
    written, text = damaged()[how]
    metadata = {"lamina": '{"version": 1}', "lamina:w": written if isinstance(written, str) else json.dumps(written)}
    tensors = {"w": torch.ones(4), "i": torch.ones(4, dtype=torch.int8)}
    tensors = {name: tensor for name, tensor in tensors.items() if f'"tensor": "{name}"' in metadata["lamina:w"]}
    with pytest.raises(CheckpointError, match=text) as caught:
        unflatten_state_dict(tensors, metadata)
    assert caught.value.entry == "w"


def test_versions() -> None:
    for text, said in (
        ('{"version": 2}', "of version 2, and this lamina reads version 1"),
        ("[]", "damaged"),
        ("{}", "damaged"),
    ):
        with pytest.raises(CheckpointError, match=said):
            unflatten_state_dict({}, {"lamina": text})
    assert json.loads(flatten_state_dict({})[1]["lamina"]) == {"version": 1}


def test_metadata_of_another_model_are_refused() -> None:
    _, metadata = flatten_state_dict({"w": ScaledInt8Tensor.quantize(torch.ones(2, 2))})
    with pytest.raises(CheckpointError, match=r"'w': lamina.*ScaledInt8Tensor refuses what was read"):
        unflatten_state_dict({"w.qdata": torch.ones(2, 2), "w.scale": torch.ones(2, 1)}, metadata)
