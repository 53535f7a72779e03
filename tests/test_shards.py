"""Flattened state dicts in shards: each can be read by itself, and all together are the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from subjects import Clear, Sum
from torch import nn

import lamina
from lamina import CheckpointError, MissingTensorsError, ScaledInt8Tensor, flatten_state_dict, unflatten_state_dict


def state_of() -> dict[str, torch.Tensor]:
    tied, base = nn.Parameter(Clear(torch.ones(4))), torch.arange(8.0)
    return {
        "int8": ScaledInt8Tensor.quantize(torch.randn(4, 4)),  # 16 + 16 bytes
        "tied": tied,  # 16
        "base": base,  # 32
        "plain": torch.zeros(4),  # 16
        "run": Sum((torch.ones(2), torch.zeros(2))),  # 16
        "view": base[4:],
        "again": tied,
    }


def entries(metadata: dict[str, str]) -> list[str]:
    return [key.removeprefix("lamina:") for key in metadata if key != "lamina"]


def test_shards_hold_whole_entries_in_order() -> None:
    shards = lamina.split_state_dict(*flatten_state_dict(state_of()), max_bytes=50)
    assert [entries(metadata) for _, metadata in shards] == [
        ["int8", "tied", "again"],
        ["base", "view", "plain"],
        ["run"],
    ]
    assert [sum(t.nbytes for t in tensors.values()) for tensors, _ in shards] == [48, 48, 16]


def test_each_shard_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    state = state_of()
    tensors, metadata = flatten_state_dict(state)
    shards = lamina.split_state_dict(tensors, {**metadata, "format": "pt"}, max_bytes=1)
    assert len(shards) == 5
    loaded = {}
    for i, shard in enumerate(shards):
        save_file(shard[0], tmp_path / f"{i}", shard[1])
        with safe_open(tmp_path / f"{i}", framework="pt") as file:
            read = file.metadata()
        assert read["format"] == "pt"
        assert json.loads(read["lamina"]) == {"version": 1}
        loaded |= unflatten_state_dict(load_file(tmp_path / f"{i}"), read)
    assert loaded.keys() == state.keys()
    assert loaded["tied"] is loaded["again"]
    loaded["base"].fill_(7)
    assert loaded["view"].tolist() == [7] * 4
    assert torch.equal(loaded["int8"].to_plain(), state["int8"].to_plain())  # type: ignore[attr-defined]


def test_merged_shards_are_the_whole() -> None:
    tensors, metadata = flatten_state_dict(state_of())
    shards = lamina.split_state_dict(tensors, metadata, max_bytes=1)
    merged = {name: t for part, _ in shards for name, t in part.items()}
    texts = {key: text for _, part in shards for key, text in part.items()}
    assert texts == metadata
    assert list(unflatten_state_dict(merged, texts)) == list(state_of())
    with pytest.raises(MissingTensorsError, match=r"'int8\.qdata', 'int8\.scale'"):
        unflatten_state_dict({name: t for part, _ in shards[1:] for name, t in part.items()}, texts)


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(1, 100))
def test_ties_of_any_pattern_stay_together(places: list[int], limit: int) -> None:
    memory = torch.arange(10.0)
    state = {str(i): Sum((memory[p * 2 : p * 2 + 2],), memory[i : i + 1]) for i, p in enumerate(places)}
    shards = lamina.split_state_dict(*flatten_state_dict(state), max_bytes=limit)
    stored = [name for tensors, _ in shards for name in tensors]
    assert len(stored) == len(set(stored))
    loaded = {}
    for shard in shards:
        loaded |= unflatten_state_dict(*shard)
    assert {int(name) for name in loaded} == set(range(len(places)))
    assert sorted(name for _, metadata in shards for name in entries(metadata)) == sorted(state)
    for name, value in state.items():
        assert torch.equal(loaded[name].to_plain(), value.to_plain())


def test_an_entry_that_ties_two_others_joins_them() -> None:
    a, b = torch.ones(2), torch.zeros(2)
    state = {"a": Clear(a), "between": torch.ones(2), "b": Clear(b), "both": Sum((a, b))}
    shards = lamina.split_state_dict(*flatten_state_dict(state), max_bytes=1)
    assert [entries(metadata) for _, metadata in shards] == [["a", "b", "both"], ["between"]]


def test_an_empty_state_dict_has_no_shards() -> None:
    assert lamina.split_state_dict(*flatten_state_dict({}), max_bytes=1) == []


def test_what_cannot_be_split_is_refused() -> None:
    tensors, metadata = flatten_state_dict(state_of())
    with pytest.raises(ValueError, match="max_bytes=0"):
        lamina.split_state_dict(tensors, metadata, max_bytes=0)
    wrong: Any
    for wrong in ("1GB", 1.5, True, None):
        with pytest.raises(TypeError, match=f"max_bytes={wrong!r} is {type(wrong).__name__}"):
            lamina.split_state_dict(tensors, metadata, max_bytes=wrong)
    with pytest.raises(MissingTensorsError):
        lamina.split_state_dict({}, metadata, max_bytes=1)
    with pytest.raises(CheckpointError, match="no key 'lamina'"):
        lamina.split_state_dict(tensors, {}, max_bytes=1)
