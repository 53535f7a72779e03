"""What the metadata say: one text of JSON for each entry of a state dict, so that a shard has those of its own.

``lamina`` holds the version, ``lamina:NAME`` the entry NAME. Other keys are other people's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from .errors import CheckpointError, MissingTensorsError, listed

VERSION = 1
HEADER = "lamina"
PREFIX = "lamina:"
T = TypeVar("T")


@dataclass
class Stored:
    """A plain tensor: the stored one of that name; or a view of its memory, size, stride and offset in elements."""

    tensor: str
    view: tuple[list[int], list[int], int] | None = None


@dataclass
class Wrapped:
    """A wrapper: its class, its inner tensors by field (None: absent, a list: a run), its context."""

    cls: str
    inner: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)


@dataclass
class Same:
    """The very object of another entry."""

    entry: str


@dataclass
class Value:
    """No tensor."""

    value: Any


Content = Stored | Wrapped | Same | Value


@dataclass
class Entry:
    """One entry of a state dict. ``index``: its place there, since safetensors keeps no order."""

    index: int
    content: Content
    parameter: bool = False
    requires_grad: bool = False

    @property
    def tensors(self) -> Iterator[str]:
        """The names of the stored tensors that it is made of."""
        return _tensors(self.content)


def _tensors(content: Any) -> Iterator[str]:
    if isinstance(content, Stored):
        yield content.tensor
    elif isinstance(content, Wrapped):
        yield from _tensors(list(content.inner.values()))
    elif isinstance(content, list):
        for item in content:
            yield from _tensors(item)


def write_entries(entries: Mapping[str, Entry]) -> dict[str, str]:
    """The metadata of ``entries``."""
    texts = {f"{PREFIX}{name}": json.dumps(_entry_json(entry)) for name, entry in entries.items()}
    return {HEADER: json.dumps({"version": VERSION}), **texts}


def _entry_json(entry: Entry) -> dict[str, Any]:
    flags = {name: True for name in ("parameter", "requires_grad") if getattr(entry, name)}
    return {"index": entry.index, **_content_json(entry.content), **flags}


def _content_json(content: Content) -> dict[str, Any]:
    if isinstance(content, Stored):
        return {"tensor": content.tensor} | ({} if content.view is None else {"view": content.view})
    if isinstance(content, Same):
        return {"same": content.entry}
    if isinstance(content, Value):
        return {"value": content.value}
    return {"class": content.cls, "inner": _inner_json(content.inner), "context": content.context}


def _inner_json(inner: Any) -> Any:
    if isinstance(inner, dict):
        return {name: _inner_json(item) for name, item in inner.items()}
    if isinstance(inner, list):
        return [_inner_json(item) for item in inner]
    return None if inner is None else _content_json(inner)


def read_entries(metadata: Mapping[str, str]) -> dict[str, Entry]:
    """The entries that ``metadata`` tell of, in the order of the state dict.

    Raises:
        CheckpointError: the version is missing or unknown, or a text is none that ``write_entries`` wrote.
    """
    _check_version(metadata)
    entries = {
        key.removeprefix(PREFIX): _read_entry(key.removeprefix(PREFIX), text)
        for key, text in metadata.items()
        if key.startswith(PREFIX)
    }
    return dict(sorted(entries.items(), key=lambda item: item[1].index))


def _check_version(metadata: Mapping[str, str]) -> None:
    if HEADER not in metadata:
        raise CheckpointError(
            None,
            f"the metadata have no key {HEADER!r}, so they are none that lamina.flatten_state_dict made",
            "With safetensors, pass safe_open(path, framework='pt').metadata(). For a checkpoint of plain tensors "
            "there is nothing to unflatten: load it as it is.",
        )
    version = _take(_loaded(None, metadata[HEADER]), "version", int, None)
    if version != VERSION:
        raise CheckpointError(
            None,
            f"the metadata are of version {version}, and this lamina reads version {VERSION}",
            "Load it with the lamina that saved it, or a newer one.",
        )


def _loaded(entry: str | None, text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged(entry, f"no JSON ({error})") from error


def _damaged(entry: str | None, what: str) -> CheckpointError:
    return CheckpointError(entry, f"its metadata are damaged: {what}", "Load another copy of the checkpoint.")


def _take(mapping: Any, key: str, kind: type[T], entry: str | None, default: T | None = None) -> T:
    if not isinstance(mapping, dict):
        raise _damaged(entry, f"{mapping!r} stands where an object with {key!r} should")
    value = mapping.get(key, default)
    if type(value) is not kind:
        raise _damaged(entry, f"{key!r} is {value!r}, and should be of type {kind.__name__}")
    return value


def _read_entry(name: str, text: Any) -> Entry:
    read = _loaded(name, text)
    flags = (_take(read, flag, bool, name, False) for flag in ("parameter", "requires_grad"))
    return Entry(_take(read, "index", int, name), _read_content(read, name), *flags)


def _read_content(read: Any, name: str) -> Content:
    if "same" in read:
        return Same(_take(read, "same", str, name))
    if "value" in read:
        return Value(read["value"])
    return _read_tensor(read, name)


def _read_tensor(read: Any, name: str) -> Stored | Wrapped:
    if isinstance(read, dict) and "tensor" in read:
        return Stored(_take(read, "tensor", str, name), _read_view(read["view"], name) if "view" in read else None)
    inner = {key: _read_inner(item, name) for key, item in _take(read, "inner", dict, name).items()}
    return Wrapped(_take(read, "class", str, name), inner, _take(read, "context", dict, name))


def _read_inner(read: Any, name: str) -> Any:
    if read is None:
        return None
    return [_read_tensor(item, name) for item in read] if isinstance(read, list) else _read_tensor(read, name)


def _read_view(view: Any, name: str) -> tuple[list[int], list[int], int]:
    if isinstance(view, list) and len(view) == 3 and isinstance(view[0], list) and isinstance(view[1], list):
        numbers = [*view[0], *view[1], view[2]]
        if len(view[0]) == len(view[1]) and all(type(n) is int and n >= 0 for n in numbers):
            return view[0], view[1], view[2]
    raise _damaged(name, f"the view {view!r} is not [size, stride, offset]")


def check_tensors(tensors: Mapping[str, torch.Tensor], entries: Mapping[str, Entry]) -> None:
    """The tensors and the metadata speak of each other, wholly.

    Raises:
        MissingTensorsError, CheckpointError: the one or the other misses something.
    """
    named = {tensor: name for name, entry in entries.items() for tensor in entry.tensors}
    missing = [tensor for tensor in named if tensor not in tensors]
    if missing:
        raise MissingTensorsError(missing, dict.fromkeys(named[tensor] for tensor in missing))
    unknown = [tensor for tensor in tensors if tensor not in named]
    if unknown:
        raise CheckpointError(
            None,
            f"the metadata say nothing of the tensors {listed(unknown)}",
            "Pass the metadata of all shards, {**first, **second}, or take those tensors out first.",
        )
