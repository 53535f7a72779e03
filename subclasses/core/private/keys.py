"""Dispatch keys that a scope adds to all calls of its thread, or takes from them; what lies at a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

DispatchKey = torch._C.DispatchKey


class added_key:  # noqa: N801 - reads as the scope that it is
    """A scope in which, from ``include_key`` on, each call passes by the kernels at one of autocast's keys, whatever
    its tensors."""

    def __init__(self, name: str) -> None:
        self.key = getattr(DispatchKey, name)

    def __enter__(self) -> None:
        self._excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(self.key)
        self._guard = torch._C._IncludeDispatchKeyGuard(self.key)
        self._guard.__enter__()

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(None, None, None)
        torch._C._dispatch_tls_set_dispatch_key_excluded(self.key, self._excluded)


def include_key(name: str) -> None:
    """Inside ``added_key``. Such a key is excluded by default, as long as its autocast is off."""
    torch._C._dispatch_tls_set_dispatch_key_excluded(getattr(DispatchKey, name), False)


# Whether autocast is on for any device, or one of its keys is included: 0.15 us.
any_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled


def inside_autocast() -> bool:
    """Whether this thread is in a scope of autocast, be it one that switches it off. 0.1 us."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


def autocast_of_caller(device: str, unless: str) -> bool:
    """In ``__torch_dispatch__`` of a wrapper, where torch hides the keys above: whether autocast was on for a type of
    device where the operator was called, and the key ``unless`` not included there."""
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        included = torch._C._dispatch_tls_is_dispatch_key_included(getattr(DispatchKey, unless))
        return not included and torch.is_autocast_enabled(device)


def excluded_key(name: str) -> Any:
    """A scope in which no call sees this key."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(getattr(DispatchKey, name)))


def pass_by(name: str) -> Any:
    """Has operators without a kernel at this key go on to the next one. Holds as long as what is returned lives."""
    library = torch.library.Library("_", "IMPL", name)
    library.fallback(torch.library.fallthrough_kernel)
    return library
