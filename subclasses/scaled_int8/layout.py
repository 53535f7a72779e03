"""oneDNN's own layout of an int8 matrix: opaque to everything but its kernels, and what these are fastest with."""

from __future__ import annotations

import torch

from .library import LIBRARY

LIBRARY.define("unpack_int8(Tensor packed) -> Tensor")


def packed(qdata: torch.Tensor) -> torch.Tensor:
    """``qdata``, int8 of shape (N, K), as a tensor of layout ``torch._mkldnn`` and shape (K, N), in its own memory."""
    # oneDNN ignores strides. Without a shape of the activations the result serves all of them, and is faster.
    out: torch.Tensor = torch.ops.onednn.qlinear_prepack(qdata.contiguous(), None)
    return out


def unpacked(matrix: torch.Tensor) -> torch.Tensor:
    """The inverse of ``packed``, bit for bit. An operator: compilers know nothing of the layout."""
    out: torch.Tensor = torch.ops.lamina.unpack_int8(matrix)
    return out


def _unpack(matrix: torch.Tensor) -> torch.Tensor:
    # contiguous() would leave the stride of a dim of size 1 as it is
    return matrix.to_dense().t().clone(memory_format=torch.contiguous_format)


def _fake_unpack(matrix: torch.Tensor) -> torch.Tensor:
    columns, rows = matrix.shape
    return torch.empty((rows, columns), dtype=torch.int8, device=matrix.device)


LIBRARY.impl("unpack_int8", _unpack, "MkldnnCPU")
torch.library.register_fake("lamina::unpack_int8", _fake_unpack, lib=LIBRARY)
