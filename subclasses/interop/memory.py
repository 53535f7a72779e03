"""Which tensors share memory, so that each piece of it is stored once, as a contiguous tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from .entries import Stored
from .errors import MISMATCHED, CheckpointError, listed


class Leaf(NamedTuple):
    """A plain tensor to be stored, and where to write how: ``stored.tensor`` is the name that it would have."""

    entry: str
    tensor: torch.Tensor
    stored: Stored

    @property
    def geometry(self) -> tuple[object, ...]:
        tensor = self.tensor
        return tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride()

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte of the storage that it reads, and the one after the last."""
        start, width = self.start, self.tensor.element_size()
        return start * width, (start + _span(list(self.tensor.size()), list(self.tensor.stride()))) * width

    @property
    def start(self) -> int:
        return int(self.tensor.storage_offset())


def _span(size: list[int], stride: list[int]) -> int:
    """How many elements of memory lie between the first and the last of a tensor, both counted."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def store(leaves: list[Leaf]) -> dict[str, torch.Tensor]:
    """The tensors that hold the memory of ``leaves``, no two of which overlap; each leaf's ``stored`` says what it is
    of them. What is contiguous is not copied.

    Raises:
        CheckpointError: tensors of two dtypes share memory.
    """
    return dict(_store_one(group) if _is_one(group) else _store_views(group) for group in _overlapping(leaves))


def _overlapping(leaves: list[Leaf]) -> Iterator[list[Leaf]]:
    """The leaves in groups, those whose extents overlap together."""
    storages: dict[object, list[Leaf]] = {}
    for leaf in leaves:
        key = leaf.tensor.untyped_storage().data_ptr() if leaf.tensor.numel() else id(leaf.stored)
        storages.setdefault((leaf.tensor.device, key, leaf.tensor.numel() > 0), []).append(leaf)
    for sharing in storages.values():
        group: list[Leaf] = []
        end = 0
        for leaf in sorted(sharing, key=lambda each: each.extent[0]):
            if group and leaf.extent[0] >= end:
                yield group
                group = []
            end = max(end, leaf.extent[1]) if group else leaf.extent[1]
            group.append(leaf)
        yield group


def _is_one(group: list[Leaf]) -> bool:
    return len({leaf.geometry for leaf in group}) == 1


def _store_one(group: list[Leaf]) -> tuple[str, torch.Tensor]:
    """Stores tensors that are one and the same, in the order of their memory: they come back with their strides, or
    with dense ones where they had gaps."""
    tensor, name = group[0].tensor, group[0].stored.tensor
    repeated = [d for d in range(tensor.dim()) if tensor.stride(d) == 0 and tensor.size(d) > 1]
    core = tensor
    for d in repeated:
        core = core.narrow(d, 0, 1)
    order = list(range(tensor.dim()))
    if not tensor.is_contiguous():
        order.sort(key=tensor.stride().__getitem__, reverse=True)
    image = core.permute(order).contiguous()
    stride = list(tensor.stride())  # that of a dim of size 1 means nothing, and guards compiled code all the same
    for place, d in enumerate(order):
        if core.size(d) > 1:
            stride[d] = image.stride(place)
    read = torch.empty(image.shape, device="meta")  # has the strides that a file gives, not those of ``image``
    whole = read.shape == tensor.shape and stride == list(read.stride())
    for leaf in group:
        leaf.stored.tensor, leaf.stored.view = name, None if whole else (list(tensor.size()), stride, 0)
    return name, image


def _store_views(group: list[Leaf]) -> tuple[str, torch.Tensor]:
    """Stores memory that several tensors see differently: as the one that sees all of it, else as a flat tensor."""
    if len({leaf.tensor.dtype for leaf in group}) > 1:
        raise CheckpointError(
            group[0].entry,
            f"{listed(dict.fromkeys(leaf.entry for leaf in group))} share memory under several dtypes: "
            f"{', '.join(sorted({str(leaf.tensor.dtype) for leaf in group}))}",
            "Clone one of them before flattening.",
        )
    width = group[0].tensor.element_size()
    start, end = (pick(leaf.extent[i] for leaf in group) // width for i, pick in enumerate((min, max)))
    whole = next((leaf for leaf in group if leaf.tensor.is_contiguous() and leaf.tensor.numel() == end - start), None)
    image = group[0].tensor.as_strided((end - start,), (1,), start) if whole is None else whole.tensor
    name = (whole or group[0]).stored.tensor
    for leaf in group:
        tensor = leaf.tensor
        same = whole is not None and leaf.geometry == whole.geometry
        leaf.stored.tensor = name
        leaf.stored.view = None if same else (list(tensor.size()), list(tensor.stride()), leaf.start - start)
    return name, image


def view_of(image: torch.Tensor, stored: Stored, entry: str) -> torch.Tensor:
    """The tensor that ``stored`` describes, as a tensor object of its own.

    Raises:
        CheckpointError: it would read beyond ``image``.
    """
    if stored.view is None:
        return image.detach()
    size, stride, offset = stored.view
    if offset + _span(size, stride) > image.numel():
        raise CheckpointError(
            entry,
            f"the view [size, stride, offset] = {list(stored.view)} lies outside of the tensor {stored.tensor!r} of "
            f"shape {tuple(image.shape)}",
            MISMATCHED,
        )
    return image.detach().as_strided(size, stride, image.storage_offset() + offset)
