"""Formulas for operators that torch's flop counter has none for, in its own registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op_costs import flop_counter

_aten = torch.ops.aten
_KINDS = ("flash", "efficient", "cudnn")  # of attention kernels with a formula


def register_missing_formulas() -> None:
    """Attention and recurrent layers as the CPU runs them."""
    _register_attention()
    _register_recurrent()


def _register_attention() -> None:
    """It gets the formula of the others. Like them it counts a causal mask as if all was computed. And where that of
    torch (2.11) takes no grouped queries, all get one that does."""
    torchs, grouped = flop_counter(), not _takes_groups()
    for name, query in (("", 0), ("_backward", 1)):
        ours = getattr(_aten, f"_scaled_dot_product_flash_attention_for_cpu{name}")
        if ours in torchs.flop_registry:
            continue
        theirs = [getattr(_aten, f"_scaled_dot_product_{kind}_attention{name}") for kind in _KINDS]
        if grouped:
            torchs.flop_registry.update({each: _with_groups(torchs.flop_registry[each], query) for each in theirs})
        torchs.register_flop_formula(ours, get_raw=True)(torchs.flop_registry[theirs[0]])


def _takes_groups() -> bool:
    try:
        flop_counter().sdpa_flop_count((1, 2, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1))
    except AssertionError:
        return False
    return True


def _with_groups(formula: Callable[..., int], query: int) -> Callable[..., int]:
    """Of attention: a key and a value count as if each query had its own. ``query``: its place."""

    def count(*args: Any, **kwargs: Any) -> int:
        heads = args[query].shape[1]
        alike = [(x.shape[0], heads, *x.shape[2:]) for x in args[query + 1 : query + 3]]
        return formula(*args[: query + 1], *alike, *args[query + 3 :], **kwargs)

    return count


def _register_recurrent() -> None:
    """oneDNN's layer of all steps; the formulas are as those that torch registers, of shapes."""
    torchs = flop_counter()
    found = {_aten.mkldnn_rnn_layer: _layer, _aten.mkldnn_rnn_layer_backward: _layer_backward}
    for op, formula in found.items():
        if op not in torchs.flop_registry:
            torchs.register_flop_formula(op)(formula)


def _layer(given: Sequence[int], input_weight: Sequence[int], hidden_weight: Sequence[int], *_: Any, **__: Any) -> int:
    """At each step of each sequence, both weights are multiplied by a vector: of the input, and of the state."""
    steps, batch = given[:2]
    rows, columns = input_weight
    more, size = hidden_weight
    return 2 * steps * batch * (rows * columns + more * size)


def _layer_backward(*args: Any, **kwargs: Any) -> int:
    """As much for the gradient of what is multiplied as for that of the weights."""
    return 2 * _layer(*args, **kwargs)
