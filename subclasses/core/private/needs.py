"""What each view of the dispatcher needs of torch: a build that lacks a name has no such view, and the rest works."""

from __future__ import annotations

from functools import reduce

import torch


class UnseenError(RuntimeError):
    """What was asked for takes private names that this build of torch lacks. The text has them."""


# View to names, as Python finds them. What all of lamina stands on is not here.
NEEDS: dict[str, tuple[str, ...]] = {
    "the dispatcher's decisions": (
        "torch._C._EnablePythonDispatcher",
        "torch._C._DisablePythonDispatcher",
        "torch._C._dispatch_has_kernel_for_any_dispatch_key",
        "torch._ops.OpOverload._get_dispatch",
        "torch._ops.cached_ops",
        "torch._ops.resolve_key",
        "torch.ops.aten.detach.default._dispatch_cache",
        "torch.ops.aten.detach.default._op_dk",
    ),
    "key sets": (
        "torch._C._dispatch_keys",
        "torch._C._dispatch_tls_local_exclude_set",
        "torch._C._dispatch_tls_local_include_set",
        "torch._C.DispatchKeySet.has",
        "torch._C.DispatchKeySet.highestPriorityTypeId",
        "torch._C.DispatchKeySet.remove",
    ),
    "the bits of key sets": (
        "torch._C.DispatchKeySet.raw_repr",
        "torch._C._dispatch_num_backends",
        "torch._C._to_functionality_key",
    ),
    "dispatch tables": ("torch._C._dispatch_dump_table",),
    "what is registered": (
        "torch._C._dispatch_dump",
        "torch._C._dispatch_get_registrations_for_dispatch_key",
        "torch._C._dispatch_is_alias_key",
    ),
    "the names of operators": ("torch._C._dispatch_get_all_op_names",),
    "dispatch modes": ("torch._C._get_dispatch_stack_at", "torch._C._len_torch_dispatch_stack"),
    "function modes": ("torch.overrides._get_current_function_mode_stack",),
}


def lacking(view: str) -> list[str]:
    """The names that this build lacks for a view."""
    return [name for name in NEEDS[view] if not _there(name)]


def require(*views: str) -> None:
    """Raises ``UnseenError`` if this build lacks what it takes for one of the views."""
    for view in views:
        missing = lacking(view)
        if missing:
            raise UnseenError(f"torch {torch.__version__} lacks {', '.join(missing)}: {view} can't be seen.")


def _there(name: str) -> bool:
    try:
        reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        return False
    return True
