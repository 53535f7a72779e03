"""autocast reaches FakeLikeTensors inside FakeLikeMode only: elsewhere a call under it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import any_autocast, key_test
from .errors import UndecidedError

# A key of no backend. The mode has each call pass by it, and puts kernels of its own there.
KEY = "AutocastIPU"

_is_seen: Callable[[], bool] = key_test(KEY)


def is_uncast() -> bool:
    """Whether autocast may be on, for some device, and nothing of ours sees to it."""
    return any_autocast() and not _is_seen()


def refuse_uncast(op: object, args: Sequence[Any]) -> None:
    """Raises:
    UndecidedError: autocast is on for the claimed device.
    """
    for tensor in tensors_in(tuple(args)):
        if torch.is_autocast_enabled(tensor.device.type):
            raise UndecidedError(
                f"{op} under torch.autocast({tensor.device.type!r}): a FakeLikeTensor is cast as the device would "
                "inside FakeLikeMode only. Put `with lamina.modes.FakeLikeMode():` around the step."
            )
