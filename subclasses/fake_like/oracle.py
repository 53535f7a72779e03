"""The metadata of a call that was not seen before: asked of torch's own fake tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import FakeTensor, FakeTensorMode, OpOverload, below_python, with_math_bits

META = torch.device("meta")


class Oracle:
    """One call, computed on torch's fake tensors that stand for ours: those of one storage share one there.

    C++ knows a carrier as a tensor on the meta device, and hands that device on where it makes a tensor "like" another
    one: as an argument of the call, it stands for ``claim``.
    """

    def __init__(self, fake: type, claim: torch.device) -> None:
        self.mode = FakeTensorMode()
        self.fake, self.claim = fake, claim
        self._made: dict[int, torch.Tensor] = {}

    def stand_ins(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with torch's fake tensors in place of ours. A tensor that is given twice has one stand-in."""
        return [self.stand_in(value) for value in args], {key: self.stand_in(value) for key, value in kwargs.items()}

    def compute(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of the call with stand-ins."""
        with self.mode:
            return with_math_bits(op, *args, **kwargs)

    def stand_in(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._made:
                self._made[id(value)] = self._tensor(value)
            return self._made[id(value)]
        if isinstance(value, (list, tuple)):
            return [self.stand_in(each) for each in value]
        return self.claim if isinstance(value, torch.device) and value == META else value

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, self.fake):
            return FakeTensor(self.mode, carrier_of(value), value.device)
        if value.device == META:
            return FakeTensor(self.mode, carrier_of(value), self.claim)
        return self.mode.from_tensor(value)


def carrier_of(tensor: torch.Tensor) -> torch.Tensor:
    """What C++ knows of a wrapper, as a plain tensor: an alias of its own."""
    with below_python():
        return torch.ops.aten.alias.default(tensor)


def claim_of(fake: type, args: Sequence[Any], kwargs: Mapping[str, Any], default: torch.device) -> torch.device:
    """The device that a call is about: that of its tensors, of one with dimensions if there is any."""
    found = [tensor for tensor in tensors_in((args, dict(kwargs))) if isinstance(tensor, fake)]
    return next((t.device for t in found if t.dim()), found[0].device if found else default)
