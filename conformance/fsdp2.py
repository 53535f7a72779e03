"""What FSDP2 and DTensor ask of a tensor class, and the call that checks it."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch

from .report import Report
from .run import check_subclass
from .subject import Make


class GathersItsLeaves(Protocol):
    """The methods that FSDP2 calls on the local part of a sharded parameter. A class without them is not refused: torch
    gathers the memory that the first inner tensor happens to have, and the module finds a plain weight.

    Beside them a class has to keep itself under ``split``, ``narrow``, ``view``, ``detach``, ``copy_`` and
    ``as_strided``, since shards are cut and written by those, and to keep the rank of its values in each inner tensor,
    so that ``Shard(dim)`` means the same for all of them. ``lamina.WrapperTensor`` has both methods.
    """

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: tuple[int, ...], module: Any, mp_policy: Any
    ) -> tuple[tuple[torch.Tensor, ...], Any]:
        """The plain tensors to gather along dim 0 for this shard of a parameter of ``outer_size``, and what
        ``fsdp_post_all_gather`` is to know. ``mp_policy.param_dtype`` is the dtype to compute in, or None."""

    def fsdp_post_all_gather(
        self,
        all_gather_outputs: tuple[torch.Tensor, ...],
        metadata: Any,
        param_dtype: torch.dtype,
        *,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]] | None:
        """The whole tensor from what was gathered, and the tensors whose memory FSDP2 frees after use. With ``out``,
        which this method made before, its inner tensors hold the values already: None."""


def problem_with_hooks(cls: type[torch.Tensor]) -> tuple[str, str, str] | None:
    """The first method that ``cls`` lacks, or that can't be called as FSDP2 does: its name, what it has to take, and
    what it takes. None if all is well."""
    for name in ("fsdp_pre_all_gather", "fsdp_post_all_gather"):
        wanted = inspect.signature(getattr(GathersItsLeaves, name))
        method = getattr(cls, name, None)
        if not callable(method):
            return name, str(wanted), "nothing"
        parameters = wanted.parameters.values()
        by_place = [each for each in parameters if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        by_name = {each.name: None for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
        try:
            inspect.signature(method).bind(*by_place, **by_name)
        except TypeError:
            return name, str(wanted), str(inspect.signature(method))
    return None


def check_fsdp2_ready(cls: Any, make: Make | None = None, **options: Any) -> Report:
    """Whether the class can be sharded, replicated, sent and saved: the checks of the group ``distributed``, those on
    two ranks, too. Arguments are those of ``check_subclass``.

    >>> import lamina
    >>> lamina.conformance.check_fsdp2_ready(lamina.LoggingTensor, only=["fsdp2_finds_its_hooks"]).ok
    True
    """
    return check_subclass(cls, make, **{"only": ["distributed"], "full": True, **options})
