"""autocast outside FakeLikeMode: seen, and refused.

Autocast casts at keys of the tensors' backends, before a wrapper is asked; a carrier's backend has none. FakeLikeMode
adds a key of its own, and kernels that follow the claimed device's policy. Without it the dtypes would be those of a
run without autocast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.fields import tensors_in
from ..core.private import OpOverload, autocast_of_caller
from ..core.schema import Kind, facts_of
from .errors import UndecidedError

KEY = "AutocastIPU"  # no backend uses it


def refuse_autocast(fake: type, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """For a call inside a scope of autocast.

    Raises:
        UndecidedError: it is on for the device that an instance of ``fake`` claims, and no FakeLikeMode is there.
    """
    if Kind.VIEW in facts_of(op).kinds:
        return
    claimed = {
        tensor.device.type for tensor in tensors_in((tuple(args), dict(kwargs or {}))) if isinstance(tensor, fake)
    }
    for device in sorted(claimed):
        if autocast_of_caller(device, unless=KEY):
            raise UndecidedError(
                f'{op}: torch.autocast("{device}") is on, and outside FakeLikeMode it would not cast FakeLikeTensors. '
                "Run this inside `with lamina.modes.FakeLikeMode():`, or leave autocast off."
            )
