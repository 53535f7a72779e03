"""What torch keeps of a compiled function: the guards that it checks before each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..timing import Variant


def guards_variant(name: str, function: Callable[..., object], arguments: dict[str, Any]) -> Variant:
    """The check of the guards of a function that was just compiled, or just called, as something to time by itself.

    It is the very check that torch makes before each call, here of a dictionary: arguments and closure by name.

    Raises:
        RuntimeError: nothing was compiled for these arguments.
    """
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    names, cells = function.__code__.co_freevars, getattr(function, "__closure__", None) or ()
    given = {**arguments, **{name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}}
    for entry in _debug_get_cache_entry_list(function.__code__):  # of all functions that have this code
        if entry.guard_manager.check(given):
            return Variant(name, entry.guard_manager.check, (given,))
    raise RuntimeError(f"{function.__qualname__} was not compiled for these arguments: no guards hold.")


def reassembly(tensors: Sequence[Tensor]) -> Callable[[], object]:
    """What AOTAutograd does at run time to take wrapped arguments apart and to put results like them together: its own
    generated function, for these tensors, around a graph that does nothing."""
    from torch._functorch._aot_autograd.subclass_codegen import codegen_subclass_wrapper
    from torch._functorch._aot_autograd.subclass_utils import create_subclass_meta
    from torch._subclasses import FakeTensorMode

    fakes = FakeTensorMode()
    metas = create_subclass_meta([fakes.from_tensor(each, static_shapes=True) for each in tensors])
    for meta in metas:
        if hasattr(meta, "make_runtime_safe"):
            meta.make_runtime_safe()
    parts: list[Tensor] = []

    def graph(flat: list[Tensor]) -> list[Tensor]:
        parts[:] = flat
        return parts

    whole = codegen_subclass_wrapper(graph, inp_metas=metas, out_metas=metas, num_fw_outs_saved_for_bw=None)
    return lambda: whole(list(tensors))
