"""PyTorch's operator database, imported without what that import changes in the process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

Operator: TypeAlias = "OpInfo"


@cache
def operators() -> list[OpInfo]:
    """Every operator that PyTorch has samples of. The first call takes seconds.

    Raises:
        ImportError: a package is missing that torch's own tests need, such as expecttest.
    """
    with _as_it_was(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Undoes what torch's test utilities do to the process that imports them: they forbid to set backend flags, load a
    profile of hypothesis, and time scripted functions.
    """
    forbid, profile = torch.backends.disable_global_flags, _hypothesis_profile()
    scripted: tuple[Any, ...] = (torch._C.ScriptFunction, torch._C.ScriptMethod)
    calls = [cls.__call__ for cls in scripted]
    torch.backends.disable_global_flags = lambda: None
    try:
        yield
    finally:
        torch.backends.disable_global_flags = forbid
        for cls, call in zip(scripted, calls, strict=True):
            cls.__call__ = call
        if profile is not None:
            import hypothesis

            hypothesis.settings.load_profile(profile)


def _hypothesis_profile() -> str | None:
    """The name of the one in use; None without hypothesis."""
    try:
        import hypothesis
    except ImportError:
        return None
    name: str | None = getattr(hypothesis.settings, "_current_profile", None)  # older ones have no public name for it
    return name


def shard(index: int, count: int) -> list[OpInfo]:
    """Every ``count``-th operator: the shards 0 to ``count - 1`` cover each operator once."""
    return operators()[index::count]
