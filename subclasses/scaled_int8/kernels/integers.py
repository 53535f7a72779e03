"""The integer products ``int8_mm`` is made of, (R, K) codes with a (K, N) payload, by the fastest call of torch's.

Times are of 2048 x 2048, one thread of an AVX512-VNNI CPU, in microseconds. ``torch._int_mm`` is a matrix-vector
product for one row (62). For 2 to some 16 rows it spends its time on reordering the payload: 190 to 430, and 800 to
1000 where rows of the payload lie a multiple of 2048 bytes apart, which all fall into the same lines of the cache. With
the roles swapped, payload @ codes, it reorders the codes instead: 420 for up to 16 rows, if their number is a multiple
of 4 (else twice that).
"""

from __future__ import annotations

import torch

from ...core.private import int8_product

LARGEST_K = 2**17 - 1  # sums of K products of at most 128 * 128 stay below 2^31
_ALIASING = 2048
_MANY_ROWS = 256  # from here on the order of roles makes no difference, and swapping costs a transposed result
# Elements of a payload for which a call for each row is cheaper than a reordering.
_LARGE, _LARGE_ALIASED = 2**19, 2**16


def _sums_are_exact() -> bool:
    codes = torch.full((1, 64), 127, dtype=torch.int8, device="cpu")
    payload = torch.full((64, 16), 127, dtype=torch.int8, device="cpu")
    return bool((int8_product(codes, payload) == 64 * 127**2).all())


# Whether this CPU's int8 kernels add without saturating. Those without VNNI instructions add pairs of products in int16
# first, and silently lose what is beyond 32767. Asked of the kernel itself: no name says it of every CPU. Asked here (6
# ms): later a mode or a tracer could be in the way.
SUMS_ARE_EXACT = _sums_are_exact()


def int_mm(codes: torch.Tensor, qdata: torch.Tensor) -> torch.Tensor:
    """``codes @ qdata``: integer sums, rounded once to float32, (R, N). ``K``: at most ``LARGEST_K``."""
    inputs, outputs = qdata.shape
    if inputs == 1:  # torch._int_mm misreads strides of a dim of size 1
        return codes.float() * qdata
    strides = qdata.stride()
    if 0 in strides or 1 not in strides:
        qdata, strides = qdata.contiguous(), (outputs, 1)
    rows = codes.shape[0]
    if rows == 1 or strides[0] != 1:
        return int8_product(codes, qdata).float()
    aliased = strides[1] % _ALIASING == 0
    if rows <= (5 if aliased else 3) and qdata.numel() >= (_LARGE_ALIASED if aliased else _LARGE):
        return torch.cat([int8_product(row, qdata) for row in codes.split(1)]).float()
    if aliased and rows < _MANY_ROWS:
        return _swapped(codes, qdata)
    return int8_product(codes, qdata).float()


def _swapped(codes: torch.Tensor, qdata: torch.Tensor) -> torch.Tensor:
    rows = codes.shape[0]
    if rows % 4:
        codes = torch.constant_pad_nd(codes, (0, 0, 0, -rows % 4))
    product = int8_product(qdata.t(), codes.t()).t()[:rows]
    return torch.empty(product.shape, dtype=torch.float32).copy_(product)
