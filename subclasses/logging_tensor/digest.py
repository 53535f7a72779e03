"""Values as a short text: equal for equal bits, and different, but for a chance of 2^-64, for others."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch

from ..core.fields import leaf_tensors, tensors_in
from ..core.private import metadata_only, strided_parts


def digest_of(value: Any) -> str | None:
    """Of the bits of all tensors in ``value``, wrappers by their inner tensors; None where there is no tensor with
    data. Reads the values: on a GPU that waits for them."""
    digest, found = blake2b(digest_size=8), False
    with metadata_only(), torch.no_grad():
        for tensor in tensors_in(value):
            for leaf in leaf_tensors(tensor):
                for part in strided_parts(leaf):
                    if part.device.type != "meta":
                        digest.update(_bytes(part))
                        found = True
    return digest.hexdigest() if found else None


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
