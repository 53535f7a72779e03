"""After a call that changes the shape or the storage of an argument, as ``t_``, ``resize_`` and ``out=`` do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.private import below_python, set_conj, set_neg
from .metadata import Metadata, metadata_of
from .plan import Args, Place
from .storages import Storage


def follow(places: Sequence[Place], fake: Any, args: Args, kwargs: dict[str, Any]) -> bool:
    """Makes each argument what its stand-in has become; their storages are the same objects. True: there was something
    to change, so that another call of the same signature has to change it again."""
    changed = False
    for place in places:
        own = place.find(args, kwargs)
        if isinstance(own, fake):
            now = metadata_of(place.tensor, own.device)
            if now is not own._l_metadata or place.moved:
                become(own, place.tensor, now)
                changed = True
    return changed


def become(own: Any, other: torch.Tensor | Storage, metadata: Metadata) -> None:
    """Gives ``own`` such metadata, in the storage of ``other``."""
    with below_python(), torch.no_grad():
        torch.ops.aten.set_.source_Storage_storage_offset(
            own, other.untyped_storage(), metadata.offset, metadata.size, metadata.stride
        )
    set_conj(own, metadata.conj)
    set_neg(own, metadata.neg)
    vars(own).pop("meta", None)
    own._l_metadata = metadata
