"""What FakeLikeTensor answers while PyTorch traces: the operator on the inner tensors, on the meta device, as the graph
will run it; and what the results claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import map_nested
from .oracle import META, claim_of

Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def claiming(cls: type, run: Run) -> Run:
    """``run``, which answers with inner tensors, where plain operands and devices are those of the claim."""

    def traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        claim = claim_of(cls, args, kwargs, META)
        named: list[torch.device] = []

        def carried(value: Any) -> Any:
            if isinstance(value, torch.device):
                named.append(value)
                return META
            plain = isinstance(value, torch.Tensor) and not isinstance(value, cls)
            return value.to(META) if plain and value.dim() and value.device != META else value

        result = run(tuple(map_nested(carried, list(args))), map_nested(carried, kwargs))
        given = {id(tensor) for tensor in tensors_in((args, kwargs))}
        for tensor in tensors_in(result):
            if isinstance(tensor, cls) and id(tensor) not in given:
                vars(tensor)["claim"] = named[0] if named and named[0] != META else claim
        return result

    return traced
