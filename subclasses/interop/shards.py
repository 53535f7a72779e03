"""``split_state_dict``: what ``flatten_state_dict`` made in shards, each of which can be read by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from .entries import HEADER, PREFIX, Entry, Same, check_tensors, read_entries, write_entries

Shard = tuple[dict[str, torch.Tensor], dict[str, str]]


def split_state_dict(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], max_bytes: int) -> list[Shard]:
    """What ``flatten_state_dict`` made as shards of at most ``max_bytes`` of tensors each, in order. A wrapper stays
    whole, and so do ties and whatever shares memory: where one of them is larger, its shard is.

    >>> import lamina
    >>> flat = lamina.flatten_state_dict({"first": torch.zeros(4), "second": torch.ones(4)})
    >>> for tensors, metadata in split_state_dict(*flat, max_bytes=20):
    ...     print(lamina.unflatten_state_dict(tensors, metadata))
    {'first': tensor([0., 0., 0., 0.])}
    {'second': tensor([1., 1., 1., 1.])}

    Raises:
        CheckpointError: as for ``unflatten_state_dict``.
        TypeError: ``max_bytes`` is not an int.
        ValueError: it is not positive.
    """
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool):
        raise TypeError(f"max_bytes={max_bytes!r} is {type(max_bytes).__name__}: pass a number of bytes, as 5 * 10**9")
    if max_bytes <= 0:
        raise ValueError(f"max_bytes={max_bytes} leaves no room for a tensor: pass a positive number of bytes")
    entries = read_entries(metadata)
    check_tensors(tensors, entries)
    others = {key: text for key, text in metadata.items() if key != HEADER and not key.startswith(PREFIX)}
    bins: list[_Group] = []
    for group in _groups(entries):
        size = sum(tensors[name].nbytes for name in group.tensors)
        if not bins or bins[-1].size + size > max_bytes:
            bins.append(_Group())
        bins[-1].absorb(group, size)
    return [
        (
            {name: tensors[name] for name in each.tensors},
            {**others, **write_entries({name: entries[name] for name in each.entries})},
        )
        for each in bins
    ]


@dataclass(eq=False)
class _Group:
    """Entries that stay together, and their tensors, as dictionaries for their order."""

    entries: dict[str, None] = field(default_factory=dict)
    tensors: dict[str, None] = field(default_factory=dict)
    size: int = 0

    def absorb(self, other: _Group, size: int = 0) -> None:
        self.entries |= other.entries
        self.tensors |= other.tensors
        self.size += size


def _groups(entries: Mapping[str, Entry]) -> list[_Group]:
    """The entries, together with those that share a tensor or an object with them."""
    of_entry: dict[str, _Group] = {}
    of_tensor: dict[str, _Group] = {}
    for name, entry in entries.items():
        group = _Group({name: None}, dict.fromkeys(entry.tensors))
        tied = [of_tensor[tensor] for tensor in group.tensors if tensor in of_tensor]
        if isinstance(entry.content, Same) and entry.content.entry in of_entry:
            tied.append(of_entry[entry.content.entry])
        if tied:
            first, *rest = dict.fromkeys(tied)
            for other in (*rest, group):
                first.absorb(other)
            group = first
        of_entry |= dict.fromkeys(group.entries, group)
        of_tensor |= dict.fromkeys(group.tensors, group)
    return list(dict.fromkeys(of_entry.values()))
